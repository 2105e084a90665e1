"""A script of the user, run as `__main__` in this process as `torchrun` would run it."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from dtsweep.errors import in_user_code, is_own_code
from dtsweep.hardware.variables import variables_set
from dtsweep.secret import print_traceback

USAGE = 2
"""Exit code of argparse and click for arguments that they refuse; the last line says which."""

BOX = " \t│┃|"
"""Characters that typer and tyro draw around a line."""


class ScriptExitError(RuntimeError):
    """The script ended itself with an exit code other than 0."""

    is_whole_reason = True


class LastLine:
    """A stream that passes all on to another one, and keeps the last line with a word in it."""

    def __init__(self, stream: Any) -> None:
        """Pass on to a stream."""
        self._stream = stream
        self._begun = ""
        self.line = ""

    def write(self, text: str) -> Any:
        """Write to the stream."""
        # A progress bar writes over its line, and ends none.
        *whole, self._begun = re.split(r"[\r\n]", self._begun + text)
        for line in (*whole, self._begun):
            if any(character.isalnum() for character in line):
                self.line = line.strip(BOX)
        return self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        """Write lines to the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Attribute of the stream."""
        return getattr(self._stream, name)


class _ProcessEnd(BaseException):
    """Raised instead of `os._exit`, which would end a process that has other trials to run."""


@contextmanager
def exits_noted() -> Iterator[None]:
    """Turn the end of a process into an error; code 0 ends this context alone.

    Raises:
        ScriptExitError: the code in it called `sys.exit` or `os._exit` with a code other than 0.
    """
    stderr = sys.stderr
    sys.stderr = last = LastLine(stderr)
    try:
        with _no_process_end():
            yield
    except SystemExit as end:
        if end.code not in (None, 0):
            error = ScriptExitError(reason_of(end.code, last_line=last.line))
            if end.code != USAGE:
                # Where the script reads its arguments is not where they are wrong.
                error = error.with_traceback(end.__traceback__)
            raise error from None
    except _ProcessEnd as end:
        reason = f"the script ended its process by os._exit({end})"
        raise ScriptExitError(reason).with_traceback(end.__traceback__) from None
    finally:
        if sys.stderr is last:
            sys.stderr = stderr


def reason_of(code: object, *, last_line: str) -> str:
    """Reason for an exit code, in a line.

    Args:
        code: as `sys.exit` was given it, not 0; a text stands for the code 1 after this text.
        last_line: on stderr; empty if there is none.

    >>> reason_of(3, last_line="no paper")
    'the script ended with exit code 3; its last line on stderr: no paper'
    >>> reason_of(2, last_line="train.py: error: unrecognized arguments: --batch-sise 8")
    'train.py: error: unrecognized arguments: --batch-sise 8'
    >>> reason_of("no data", last_line="")
    'the script ended with exit code 1: no data'
    """
    if not isinstance(code, int):
        return f"the script ended with exit code 1: {' '.join(str(code).split())}"
    if code == USAGE and last_line:
        return last_line
    if last_line:
        return f"the script ended with exit code {code}; its last line on stderr: {last_line}"
    return f"the script ended with exit code {code}"


@contextmanager
def _no_process_end() -> Iterator[None]:
    """Have `os._exit` raise in this thread of this process; its children end as ever."""
    end_process = os._exit
    here = os.getpid(), threading.get_ident()

    def end(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != here:
            end_process(status)
        raise _ProcessEnd(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = end_process


Copies = Sequence[tuple[Path, Path]]
"""Folders, each with the user's folder that it is a copy of."""

SENT = "py_modules_files"
"""Part of the paths to which Ray unpacks the modules of a run."""


VARIABLES = {
    # Hydra would hide where the script has failed.
    "HYDRA_FULL_ERROR": "1",
    # Git writes the user's index when it is asked for a status.
    "GIT_OPTIONAL_LOCKS": "0",
}
"""Environment variables of a script."""


def run_script(path: Path, arguments: Sequence[str], *, copies: Copies = ()) -> None:
    """Run a script until it ends; what it changes in the interpreter is undone.

    Its folder is first on `sys.path`, as Python has it for a script. Functions that it registers
    for the end of the process are called when it ends. Modules of the user that it imports are
    forgotten, so that the next run executes them again.

    Args:
        path: of the script; it may be a copy.
        arguments: of the script.
        copies: folders that are imported from in place of the user's. Tracebacks name the user's.

    Raises:
        ScriptExitError: it ended itself with an exit code other than 0.
    """
    with (
        variables_set(VARIABLES),
        exits_noted(),
        as_main_program(path, arguments),
        _imported_from(copies),
    ):
        code = compile(path.read_bytes(), _original_of(str(path), copies), "exec")
        main = ModuleType("__main__")
        main.__dict__.update(__file__=str(path), __builtins__=builtins)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # noqa: S102  # the user's script


@contextlib.contextmanager
def _imported_from(copies: Copies) -> Iterator[None]:
    """Import the user's modules from copies of their folders, under the names of the user's."""

    class Loader(SourceFileLoader):
        """Compiles a copy as the file that it is a copy of."""

        def get_code(self, fullname: str) -> CodeType:
            path = self.get_filename(fullname)
            code: CodeType = self.source_to_code(self.get_data(path), _original_of(path, copies))
            return code

    def finder(folder: str) -> FileFinder:
        if _original_of(folder, copies) == folder:
            raise ImportError(folder)
        extensions = (ExtensionFileLoader, EXTENSION_SUFFIXES)
        return FileFinder(folder, extensions, (Loader, SOURCE_SUFFIXES))

    sys.path[:] = [_copy_of(folder, copies) for folder in sys.path]
    sys.path_hooks.insert(0, finder)
    try:
        yield
    finally:
        sys.path_hooks.remove(finder)
        for folder in list(sys.path_importer_cache):
            if _original_of(folder, copies) != folder:
                del sys.path_importer_cache[folder]


def _original_of(path: str, copies: Copies) -> str:
    for copy, original in copies:
        if Path(path).is_relative_to(copy):
            return str(original / Path(path).relative_to(copy))
    return path


def _copy_of(path: str, copies: Copies) -> str:
    for copy, original in copies:
        # Installed packages may lie in a folder of the user's.
        if in_user_code(path) and Path(path).is_relative_to(original):
            return str(copy / Path(path).relative_to(original))
    return path


def script_here(path: Path) -> Path:
    """The script on this node, without links: at its path, or where Ray has put what it was sent.

    Raises:
        FileNotFoundError: it is at neither.
    """
    sent = [Path(folder, path.name) for folder in sys.path if SENT in folder]
    copies = [copy for copy in sent if copy.is_file()]
    if path.is_file() and (not copies or path.read_bytes() == copies[0].read_bytes()):
        return path.resolve()
    if copies:
        return copies[0].resolve()
    raise FileNotFoundError(f"the script {path} is not on this node")


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
    except Exception as error:  # noqa: BLE001  # the function is the user's
        print_traceback(error)


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
    new = {name: module for name, module in sys.modules.items() if name not in but}
    # A namespace package asks its parent where it lies, so none goes before all are known.
    for name in [name for name, module in new.items() if _is_of_user(module)]:
        del sys.modules[name]


def _is_of_user(module: Any) -> bool:
    """True if a module is one of the user's files, or a folder of them without `__init__.py`."""
    file = getattr(module, "__file__", None)
    if file:
        return bool(file.endswith(".py") and in_user_code(file))
    folders = list(getattr(module, "__path__", ()))
    return bool(folders) and all(in_user_code(folder) for folder in folders)
