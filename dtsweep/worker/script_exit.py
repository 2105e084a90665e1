"""Ends of a script by itself: its exit code, and the last line that it wrote on stderr."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

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
