"""Text that others wrote, as it may stand in HTML, JSON in HTML, and CSV.

`dtsweep.errors.printable` is the one for the terminal. Nothing else escapes text.
"""

from __future__ import annotations

import html
import json
from typing import Any

from dtsweep.errors import printable

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters with which a spreadsheet takes a cell for a formula."""


def html_text(text: str) -> str:
    """Text between tags or in a quoted attribute of HTML.

    >>> html_text('<b title="a">')
    '&lt;b title=&quot;a&quot;&gt;'
    """
    return html.escape(printable(text), quote=True)


def html_json(value: Any) -> str:
    r"""JSON values for a `script` element of HTML, which no text in them can end.

    >>> html_json({"reason": "</script>"})
    '{"reason":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def csv_text(text: str) -> str:
    """Text of a CSV cell, which no spreadsheet takes for a formula.

    >>> csv_text("=HYPERLINK(1)"), csv_text("ddp")
    ("'=HYPERLINK(1)", 'ddp')
    """
    text = printable(text)
    if text.startswith(FORMULA):
        return f"'{text}"
    return text
