"""What a user did that can't be measured, said in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class SweepError(Exception):
    """A sweep file, an option or a set of results that can't be used; the command exits with 2.

    The message is one line for the user: what was given, what is allowed, the next step.
    """

    def __init__(self, message: str, *, word: str | None = None) -> None:
        """Keep `word`, by which the reader of a sweep file finds the line to name."""
        super().__init__(" ".join(message.split()))
        self.word = word


class StorageError(Exception):
    """Results can't be written or read; the command exits with 5 and keeps what was stored."""


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, but tab and newline: with them a stored text could move the cursor, or name the window."""


def printable(text: str) -> str:
    r"""Text for the terminal: control characters as they are written in Python.

    >>> print(printable("red \x1b[31m, C1 \x9b31m"))
    red \x1b[31m, C1 \x9b31m
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def error_line(error: BaseException) -> str:
    r"""Name an exception, with the first line of what it says.

    >>> error_line(ValueError("no such layer\nin all")), error_line(KeyError())
    ('ValueError: no such layer', 'KeyError')
    """
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """Find the allowed word that was probably meant.

    >>> nearest("DPP", ["ddp", "local_sgd"]), nearest("accum", ["accumulation"])
    ('ddp', 'accumulation')
    """
    names = list(allowed)
    if near := difflib.get_close_matches(given, names, n=1):
        return near[0]
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(given.lower(), lower, n=1)
    near = near or [name for name in lower if given and name.startswith(given.lower())]
    return lower[near[0]] if near else None


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """Name the nearest allowed word, or all of them where none is near.

    >>> did_you_mean("micro_bacth", ["workers", "micro_batch"])
    "did you mean 'micro_batch'?"
    >>> did_you_mean("x", ["ddp", "local_sgd"])
    'allowed: ddp, local_sgd'
    """
    names = list(allowed)
    near = nearest(given, names)
    return f"did you mean {near!r}?" if near else f"allowed: {', '.join(names)}"


def quoted(value: object) -> str:
    """Show a value in a message: its repr in one line, cut where it gets long.

    >>> quoted("ddp"), len(quoted(list(range(1000))))
    ("'ddp'", 60)
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"
