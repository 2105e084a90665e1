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
    """Name the code of a workload: its class, its bases, and every module from the sweep file's folder.

    Args:
        workload: an object of the class.
        folder: where the sweep file lies; None for a sweep made in Python.

    Returns:
        16 hex digits.
    """
    digest = hashlib.sha256()
    for part in (*_classes(type(workload)), *_modules(folder, type(workload).__module__)):
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


def _modules(folder: Path | None, sweep_module: str) -> Iterator[bytes]:
    if folder is None:
        return
    root = folder.resolve()
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        # Of the sweep file itself only the class counts: another axis is not another workload.
        own = name not in (sweep_module, "__main__") and name.partition(".")[0] != "dtsweep"
        # A project's folder often holds its environment too.
        if own and file.suffix == ".py" and file.is_relative_to(root) and not file.is_relative_to(sys.prefix):
            yield file.read_bytes()
