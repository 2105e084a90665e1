"""Text that others wrote, as it may stand in HTML, JSON in HTML, and CSV.

`dtsweep.errors.printable` is the one for the terminal. Nothing else escapes text.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

from dtsweep.errors import printable

FORMULA = re.compile(r"[\s'\"]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""Beginning of a cell that a spreadsheet may take for a formula.

Some skip spaces and quotes before it, or take characters of full width for those of ASCII.
"""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
"""A number that is stored as text; it is harmless, and stays one."""


def html_text(text: str) -> str:
    """Text between tags or in a quoted attribute of HTML.

    >>> html_text('<b title="a">')
    '&lt;b title=&quot;a&quot;&gt;'
    """
    return html.escape(printable(text), quote=True)


def html_json(value: Any) -> str:
    r"""JSON values for a `script` element of HTML, which no text in them can end.

    Texts are as `printable` gives them, so that they equal those that `html_text` wrote.

    Raises:
        ValueError: a number is not finite, so JSON has none for it.

    >>> html_json({"reason": "</script>"})
    '{"reason":"\\u003c/script\\u003e"}'
    """
    # All but ASCII is escaped, U+2028 and U+2029 too, which end a line of a script.
    text = json.dumps(printable_values(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def printable_values(value: Any) -> Any:
    r"""JSON values with every text as `printable` gives it, keys included.

    >>> printable_values({"names": ["a\u202eb"]})
    {'names': ['a\\u202eb']}
    """
    return changed_texts(value, printable)


def changed_texts(value: Any, change: Callable[[str], str]) -> Any:
    """JSON values with every text changed, keys included.

    >>> changed_texts({"a": ["b", 1]}, str.upper)
    {'A': ['B', 1]}
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            changed_texts(key, change): changed_texts(item, change) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [changed_texts(item, change) for item in value]
    return value


def csv_text(text: str) -> str:
    """Text of a CSV cell, which no spreadsheet takes for a formula.

    One apostrophe is put before what looks like a formula. A reader takes it away again:
    `re.sub(f"^'(?={FORMULA.pattern})", "", cell)`.

    >>> csv_text("=HYPERLINK(1)"), csv_text("  =1"), csv_text("-0.5"), csv_text("ddp")
    ("'=HYPERLINK(1)", "'  =1", '-0.5', 'ddp')
    """
    text = printable(text)
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        return f"'{text}"
    return text
