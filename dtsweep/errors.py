"""Errors of the user, described in one line."""

from __future__ import annotations

import difflib
import re
import sysconfig
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from dtsweep.secret import without_credentials


class SweepError(Exception):
    """A sweep file, an option or a set of results that can't be used; the command exits with 2.

    The message is one line for the user: what was given, what is allowed, the next step.
    """

    def __init__(self, message: str, *, word: str | None = None) -> None:
        """Keep `word`, by which the reader of a sweep file finds the line to name."""
        super().__init__(without_credentials(" ".join(message.split())))
        self.word = word


class StorageError(Exception):
    """Results can't be written or read; the command exits with 5 and keeps what was stored."""

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        """Say it without credentials, which libraries repeat with the address.

        Args:
            message: what can't be done, and why.
            may_pass: whether the same call may succeed later, as after an outage.
        """
        super().__init__(without_credentials(message))
        self.may_pass = may_pass


STORED = 10_000
"""Most characters of an error that a row keeps."""

SHOWN = 500
"""Most characters of a stored reason that a terminal shows; the row has all of it."""

LABEL_SHOWN = 60
"""Most characters of a value that a label shows."""

CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that order a terminal about, or that nobody sees; tab and newline are not among them.

Control characters move the cursor or rename the window, marks of direction show a text in another
order, invisible ones make two names look the same, and half a surrogate can't be encoded.
"""


def printable(text: str) -> str:
    r"""Text for the terminal: control characters as they are written in Python, no credentials.

    >>> print(printable("red \x1b[31m, C1 \x9b31m, backwards \u202e"))
    red \x1b[31m, C1 \x9b31m, backwards \u202e
    """
    return CONTROL.sub(
        lambda match: match[0].encode("unicode_escape").decode(), without_credentials(text)
    )


def one_line(text: str) -> str:
    r"""Text of a name or a label: as `printable` gives it, in one line.

    A name with a newline could forge a line of output, or a row of a table.

    >>> print(one_line("ddp\nok"))
    ddp\nok
    """
    return printable(text).replace("\n", r"\n").replace("\t", r"\t")


def error_line(error: BaseException) -> str:
    r"""Name an exception, with the first line of what it says, without credentials.

    The last line follows a first one that ends at a colon, such as that of a child's traceback.

    >>> error_line(ValueError("no such layer\nin all")), error_line(KeyError())
    ('ValueError: no such layer', 'KeyError')
    >>> error_line(ValueError("process 0 failed:\nTraceback\nKeyError: 3\n"))
    'ValueError: process 0 failed: KeyError: 3'
    """
    text = str(error)
    if isinstance(error, SyntaxError) and error.msg:
        # Else with the file, whose place `raised_at` names.
        text = error.msg
    lines = without_credentials(text.strip()).splitlines()
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] = f"{lines[0]} {lines[-1].strip()}"
    lines = lines[:1]
    if getattr(error, "is_whole_reason", False):
        return shortened("".join(lines), STORED)
    return shortened(": ".join([type(error).__name__, *lines]), STORED)


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters; what is left out is marked and counted.

    >>> shortened("a" * 50, 60), shortened("a" * 50, 30)
    ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'aaaaaaaa… (42 characters more)')
    """
    if len(text) <= most:
        return text
    kept = max(0, most - len(f"… ({len(text)} characters more)"))
    return f"{text[:kept]}… ({len(text) - kept} characters more)"


def in_user_code(filename: str) -> bool:
    """True for a source file outside of dtsweep, the standard library and installed packages."""
    return not filename.startswith((*_foreign_folders(), "<frozen"))


def is_own_code(filename: str) -> bool:
    """True for a source file of dtsweep."""
    return filename.startswith(str(Path(__file__).parent))


@cache
def _foreign_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (str(Path(__file__).parent), paths["stdlib"], paths["purelib"], paths["platlib"])


def short_place(frame: traceback.FrameSummary) -> str:
    """File and line of a frame, such as `net.py:12`."""
    return f"{Path(frame.filename).name}:{frame.lineno}"


def raised_at(error: BaseException) -> str | None:
    """Innermost file and line of the user's code at which an exception was raised, or None.

    Of a syntax error its own place.
    """
    if isinstance(error, SyntaxError) and error.filename and in_user_code(error.filename):
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    places = [short_place(frame) for frame in frames if in_user_code(frame.filename)]
    if not places:
        return None
    return places[-1]


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """Find the allowed word that was probably meant.

    >>> nearest("DPP", ["ddp", "local_sgd"]), nearest("accum", ["accumulation"])
    ('ddp', 'accumulation')
    """
    names = list(allowed)
    if near := difflib.get_close_matches(word, names, n=1):
        return near[0]
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), lower, n=1)
    near = near or [name for name in lower if word and name.startswith(word.lower())]
    if not near:
        return None
    return lower[near[0]]


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Name the nearest allowed word, or all of them if there is no near one.

    >>> did_you_mean("micro_bacth", ["workers", "micro_batch"])
    "did you mean 'micro_batch'?"
    >>> did_you_mean("x", ["ddp", "local_sgd"])
    'allowed: ddp, local_sgd'
    """
    names = list(allowed)
    near = nearest(word, names)
    if near:
        return f"did you mean {near!r}?"
    return f"allowed: {', '.join(names)}"


def quoted(value: object) -> str:
    """Show a value in a message: its repr in one line without credentials, cut where it gets long.

    >>> quoted("ddp"), len(quoted(list(range(1000))))
    ("'ddp'", 60)
    """
    try:
        shown = repr(value)
    except ValueError:  # Python does not write an integer of more than some thousand digits
        shown = "an integer of very many digits"
    text = without_credentials(" ".join(shown.split()))
    if len(text) <= 60:
        return text
    return f"{text[:59]}…"
