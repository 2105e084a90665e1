"""A script of the user, run as `__main__` in this process as `torchrun` would run it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from dtsweep.errors import in_user_code, is_own_code
from dtsweep.sweep.values import Scalar


class ScriptExitError(RuntimeError):
    """The script ended itself with an exit code other than 0."""


def run_script(path: Path, arguments: Sequence[str]) -> None:
    """Run a script until it ends; what it changes in the interpreter is undone.

    Its folder is first on `sys.path`, as Python has it for a script. Functions that it registers
    for the end of the process are called when it ends. Modules of the user that it imports are
    forgotten, so that the next run executes them again.

    Raises:
        ScriptExitError: it called `sys.exit` with a code other than 0.
    """
    with as_main_program(path, arguments):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptExitError(f"the script ended with exit code {end.code}") from None


@contextlib.contextmanager
def as_main_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Be the process of a script in this context."""
    argv, search_path = list(sys.argv), list(sys.path)
    modules = set(sys.modules)
    main = sys.modules.get("__main__")
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with calls_at_its_end():
            yield
    finally:
        sys.argv[:] = argv
        sys.path[:] = search_path
        if main is not None:
            sys.modules["__main__"] = main
        _forget_modules(but=modules)


@contextlib.contextmanager
def calls_at_its_end() -> Iterator[None]:
    """Call what is registered with `atexit` in this context at its end, the last one first.

    What a library registers while it is loaded stays for the end of the process, as the library.
    """
    register, unregister = atexit.register, atexit.unregister
    calls: list[tuple[Callable[..., object], functools.partial[object]]] = []

    def register_here(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if _loads_a_library(sys._getframe(1)):
            return register(function, *args, **kwargs)
        calls.append((function, functools.partial(function, *args, **kwargs)))
        return function

    def unregister_here(function: Any, /) -> None:
        unregister(function)
        calls[:] = [call for call in calls if call[0] != function]

    atexit.register, atexit.unregister = register_here, unregister_here  # given back below
    try:
        yield
    finally:
        try:
            while calls:
                _, call = calls.pop()
                _call_at_the_end(call)
        finally:
            atexit.register, atexit.unregister = register, unregister


def _call_at_the_end(call: Callable[[], object]) -> None:
    """Call a function as Python does at the end of a process: its error is printed."""
    try:
        call()
    except Exception:  # noqa: BLE001  # the function is the user's
        traceback.print_exc()


def _loads_a_library(frame: FrameType | None) -> bool:
    """True if a frame is called by the top level of a module that is not the user's."""
    while frame is not None:
        if is_own_code(frame.f_code.co_filename):
            return False
        if frame.f_code.co_name == "<module>":
            return not in_user_code(frame.f_code.co_filename)
        frame = frame.f_back
    return False


def _forget_modules(*, but: set[str]) -> None:
    """Forget new modules of the user, wherever they lie; compiled ones can't be loaded again."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in but and file and file.endswith(".py") and in_user_code(file):
            del sys.modules[name]


def command_line(fixed: Sequence[str], values: Mapping[str, Scalar]) -> list[str]:
    """Arguments of a script for values by name.

    Args:
        fixed: arguments that do not change; they come first.
        values: by name as on the command line, without leading hyphens. True is a flag alone, False
            and None leave the argument out; a name with a dot is `name=value`, as Hydra has it; a
            name that is a number is the position of a value without a name.

    >>> command_line(["--data", "x"], {"batch-size": 8, "amp": True, "model.width": 64, "0": "run"})
    ['--data', 'x', 'run', '--batch-size', '8', '--amp', 'model.width=64']
    """
    positions = sorted((int(name), value) for name, value in values.items() if name.isdigit())
    words = [*fixed, *(str(value) for _, value in positions)]
    for name, value in values.items():
        if name.isdigit() or value is None or value is False:
            continue
        if "." in name:
            words.append(f"{name}={value}")
        elif value is True:
            words.append(f"--{name}")
        else:
            words += [f"--{name}", str(value)]
    return words
