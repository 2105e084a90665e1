"""A script of the user, run as `__main__` in this process as `torchrun` would run it."""

from __future__ import annotations

import atexit
import contextlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dtsweep.worker.script_exit import exits_noted

SENT = "py_modules_files"
"""Part of the paths to which Ray unpacks the modules of a run."""


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a script until it ends; what it changes in the interpreter is undone.

    Its folder is first on `sys.path`, as Python has it for a script. Functions that it registers
    for the end of the process are called when it ends. Modules that it imports from its folder are
    forgotten, so that the next run executes them again.

    Raises:
        ScriptExitError: it ended itself with an exit code other than 0.
    """
    with exits_noted(), _as_main_program(path, arguments):
        runpy.run_path(str(path), run_name="__main__")


def script_here(path: Path) -> Path:
    """The script on this node: at its path, or where Ray has put what it was sent.

    Raises:
        FileNotFoundError: it is at neither.
    """
    sent = [Path(folder, path.name) for folder in sys.path if SENT in folder]
    copies = [copy for copy in sent if copy.is_file()]
    if path.is_file() and (not copies or path.read_bytes() == copies[0].read_bytes()):
        return path
    if copies:
        return copies[0]
    raise FileNotFoundError(f"the script {path} is not on this node")


@contextlib.contextmanager
def _as_main_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    folder = str(path.resolve().parent)
    argv, search_path = list(sys.argv), list(sys.path)
    modules = set(sys.modules)
    main = sys.modules.get("__main__")
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, folder)
    with _at_its_end():
        try:
            yield
        finally:
            sys.argv[:] = argv
            sys.path[:] = search_path
            if main is not None:
                sys.modules["__main__"] = main
            _forget_modules(folder, but=modules)


@contextlib.contextmanager
def _at_its_end() -> Iterator[None]:
    """Call what is registered with `atexit` in this context at its end, the last one first."""
    register = atexit.register
    calls = contextlib.ExitStack()

    def register_here(function: Any, *args: Any, **kwargs: Any) -> Any:
        calls.callback(function, *args, **kwargs)
        return function

    atexit.register = register_here  # type: ignore[assignment]  # given back below
    try:
        with calls:
            yield
    finally:
        atexit.register = register


def _forget_modules(folder: str, *, but: set[str]) -> None:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in but and file and file.startswith(folder + os.sep):
            del sys.modules[name]
