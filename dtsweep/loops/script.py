"""A script of the user, run as `__main__` in this process as `torchrun` would run it."""

from __future__ import annotations

import atexit
import builtins
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from dtsweep.errors import in_user_code

_USAGE = 2
"""Exit code of argparse and click for arguments that they refuse; the last line says which."""

_BOX = " \t│┃|"
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
                self.line = line.strip(_BOX)
        return self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        """Write lines to the stream."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Attribute of the stream."""
        return getattr(self._stream, name)


@contextmanager
def _exits_noted() -> Iterator[None]:
    """Turn `sys.exit` into an error; code 0 ends this context alone.

    Raises:
        ScriptExitError: the code in it called `sys.exit` with a code other than 0.
    """
    stderr = sys.stderr
    sys.stderr = last = LastLine(stderr)
    try:
        yield
    except SystemExit as end:
        if end.code not in (None, 0):
            error = ScriptExitError(_exit_reason(end.code, last_line=last.line))
            if end.code != _USAGE:
                # Where the script reads its arguments is not where they are wrong.
                error = error.with_traceback(end.__traceback__)
            raise error from None
    finally:
        if sys.stderr is last:
            sys.stderr = stderr


def _exit_reason(code: object, *, last_line: str) -> str:
    """Reason for an exit code, in a line.

    Args:
        code: as `sys.exit` was given it, not 0; a text stands for the code 1 after this text.
        last_line: on stderr; empty if there is none.

    >>> _exit_reason(3, last_line="no paper")
    'the script ended with exit code 3; its last line on stderr: no paper'
    >>> _exit_reason(2, last_line="train.py: error: unrecognized arguments: --batch-sise 8")
    'train.py: error: unrecognized arguments: --batch-sise 8'
    >>> _exit_reason("no data", last_line="")
    'the script ended with exit code 1: no data'
    """
    if not isinstance(code, int):
        return f"the script ended with exit code 1: {' '.join(str(code).split())}"
    if code == _USAGE and last_line:
        return last_line
    if last_line:
        return f"the script ended with exit code {code}; its last line on stderr: {last_line}"
    return f"the script ended with exit code {code}"


_Copies = Sequence[tuple[Path, Path]]
"""Folders, each with the user's folder that it is a copy of."""

_SENT = "py_modules_files"
"""Part of the paths to which Ray unpacks the modules of a run."""


_VARIABLES = {
    # Hydra would hide where the script has failed.
    "HYDRA_FULL_ERROR": "1",
    # Git writes the user's index when it is asked for a status.
    "GIT_OPTIONAL_LOCKS": "0",
}
"""Environment variables of a script."""


def run_script(path: Path, arguments: Sequence[str], *, copies: _Copies = ()) -> None:
    """Run a script until it ends, in a process that is its own from now on.

    Its folder is first on `sys.path`, as Python has it for a script.

    Args:
        path: of the script; it may be a copy.
        arguments: of the script.
        copies: folders that are imported from in place of the user's. Tracebacks name the user's.

    Raises:
        ScriptExitError: it ended itself with an exit code other than 0.
    """
    os.environ.update(_VARIABLES)
    sys.argv[:] = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    _import_from(copies)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(path), __builtins__=builtins)
    with _exits_noted():
        code = compile(path.read_bytes(), _original_of(str(path), copies), "exec")
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # noqa: S102  # the user's script


@contextmanager
def interpreter_kept(copies: _Copies) -> Iterator[None]:
    """Restore the main module, arguments and import hooks; forget modules of copies.

    The search path and the environment are those of `hardware.process_state`.
    """
    main, arguments, hooks = sys.modules["__main__"], [*sys.argv], [*sys.path_hooks]
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        sys.argv[:], sys.path_hooks[:] = arguments, hooks
        for name, module in [*sys.modules.items()]:
            # A namespace package has no file; some modules of torch make any attribute.
            names = getattr(module, "__dict__", {})
            place = f"{names.get('__file__')} {names.get('__path__')}"
            if any(str(copy) in place for copy, _ in copies):
                del sys.modules[name]


def run_exit_functions() -> None:
    """Do what Python does at the end of a process: call what is registered with `atexit`."""
    for process in multiprocessing.active_children():
        if not process.daemon:
            # One of these functions would wait for its end.
            process.kill()
    atexit._run_exitfuncs()


def _import_from(copies: _Copies) -> None:
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


def _original_of(path: str, copies: _Copies) -> str:
    for copy, original in copies:
        if Path(path).is_relative_to(copy):
            return str(original / Path(path).relative_to(copy))
    return path


def _copy_of(path: str, copies: _Copies) -> str:
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
    sent = [Path(folder, path.name) for folder in sys.path if _SENT in folder]
    copies = [copy for copy in sent if copy.is_file()]
    if path.is_file() and (not copies or path.read_bytes() == copies[0].read_bytes()):
        return path.resolve()
    if copies:
        return copies[0].resolve()
    raise FileNotFoundError(f"the script {path} is not on this node")
