"""Names and values of environment variables, as `os.environ` takes them."""

from __future__ import annotations

import os
import re

from dtsweep.errors import SweepError, quoted

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""Names that every shell and program takes."""


def check_variable_name(name: object, *, where: str) -> None:
    """Refuse what can't name a variable.

    Raises:
        SweepError: it can't. A value that was written into the name is not repeated.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return
    shown = name
    if isinstance(name, str) and "=" in name:
        shown = f"{name.partition('=')[0]}=…"
    raise SweepError(
        f"{where} has {quoted(shown)}, which can't name a variable; use letters, digits and _, and "
        "no digit first",
        word=str(name),
    )


def check_variable_value(value: str, *, where: str, word: str) -> None:
    """Refuse a value that no variable can hold.

    Args:
        value: it may be a secret, so no message repeats it.
        where: the setting that has it.
        word: by which the line of a sweep file is found.

    Raises:
        SweepError: it has a NUL character, or can't be encoded.
    """
    reason = None
    if "\0" in value:
        reason = "it has a NUL character"
    else:
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            reason = "it can't be encoded"
    if reason is not None:
        raise SweepError(
            f"{where} has a value that no variable can hold: {reason}; give another value",
            word=word,
        )
