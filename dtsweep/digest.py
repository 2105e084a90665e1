"""A digest of a workload's source: results of another source are never mixed with these."""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def workload_digest(workload: Any, *, folder: Path | None) -> str:
    """Name the code of a workload: its class, its bases, what their methods name, and the modules beside it.

    Args:
        workload: an object of the class.
        folder: where the sweep file lies; None for a sweep made in Python.

    Returns:
        16 hex digits.
    """
    digest = hashlib.sha256()
    parts = (*_classes(type(workload)), *_named(type(workload)), *_modules(folder, type(workload).__module__))
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def _classes(kind: type) -> Iterator[bytes]:
    for base in kind.__mro__[:-1]:
        try:
            yield inspect.getsource(base).encode()
        except (OSError, TypeError):
            # A class that was typed into a notebook may have no file; its compiled methods stand for it.
            for name, value in sorted(vars(base).items()):
                if isinstance(value, types.FunctionType):
                    constants = [c for c in value.__code__.co_consts if not isinstance(c, types.CodeType)]
                    yield name.encode() + value.__code__.co_code + repr(constants).encode()


def _named(kind: type) -> Iterator[bytes]:
    """What the methods of a class name in the module of the class, and so on: functions, classes, constants."""
    module = sys.modules.get(kind.__module__)
    if module is None or module.__name__.startswith("dtsweep."):
        return
    waiting, seen = [kind], set()
    while waiting:
        for name in sorted(_names_in(waiting.pop())):
            value = vars(module).get(name)
            if name in seen or value is None or value is kind or isinstance(value, types.ModuleType):
                continue
            seen.add(name)
            if getattr(value, "__module__", None) == module.__name__ and isinstance(value, (type, types.FunctionType)):
                waiting.append(value)  # type: ignore[arg-type]  # a function is looked through like a class
                yield inspect.getsource(value).encode()
            elif isinstance(value, (bool, int, float, str, bytes, tuple, list, dict)):
                yield f"{name}={value!r}".encode()


def _names_in(code: Any) -> set[str]:
    """The global names that a function, or the methods of a class, use."""
    if isinstance(code, type):
        bases = {base.__name__ for base in code.__mro__[1:-1]}
        return bases.union(*(_names_in(value) for value in vars(code).values() if callable(value)))
    code = getattr(code, "__code__", code)
    if not isinstance(code, types.CodeType):
        return set()
    return set(code.co_names).union(*(_names_in(constant) for constant in code.co_consts))


def _modules(folder: Path | None, sweep_module: str) -> Iterator[bytes]:
    if folder is None:
        return
    root = folder.resolve()
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        # Of the sweep file itself only the class counts: another axis is not another workload.
        own = name not in (sweep_module, "__main__", "dtsweep") and not name.startswith(("dtsweep.", "dtsweep_file_"))
        # A project's folder often holds its environment too.
        if own and file.suffix == ".py" and file.is_relative_to(root) and not file.is_relative_to(sys.prefix):
            yield file.read_bytes()
