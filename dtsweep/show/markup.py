"""The HTML text of a page from its template, `page.html`, with all text of results escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dtsweep.errors import printable
from dtsweep.escape import html_text
from dtsweep.report.scaling_words import WORTH_RULE
from dtsweep.text import count_of

if TYPE_CHECKING:
    from jinja2 import Template

_CODE = re.compile(r"`([^`\n]+)`")

_DOUBTS_SHOWN = 3
"""Number of doubts next to the answer; the section on warnings has all."""

_WORTH_SHOWN = 6
"""Number of sentences from where one more worker doesn't pay; others are shown on demand."""

_SHORT = {
    "scaling": "Scaling",
    "shares": "Step",
    "queueing": "Queueing",
    "how": "Method",
    "machine": "Machine",
}
"""Names of sections in the navigation, where their titles are longer."""


def html_of(view: Mapping[str, Any], *, raw: Mapping[str, str]) -> str:
    """Write the page as HTML."""
    from markupsafe import Markup

    return _template().render(
        {
            **view,
            **{name: Markup(text) for name, text in raw.items()},  # noqa: S704  # our own files
            "sections": _sections(view),
            "short": _SHORT,
            "worth_rule": WORTH_RULE,
            "worth_shown": _WORTH_SHOWN,
            "doubts_shown": _DOUBTS_SHOWN,
        }
    )


@cache
def _template() -> Template:
    """The page, with every text escaped, and without characters that are not printable."""
    from jinja2 import Environment

    environment = Environment(
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "prose": _prose,
        # Values of a setting, each once: numbers first, by size, then texts.
        "by_size": lambda values: sorted(set(values), key=_size),
        "rows": lambda columns: zip(*columns.values(), strict=True),
        "count_of": count_of,
        "first_line": lambda text: text.partition("\n")[0],
    }
    text = files("dtsweep.show").joinpath("page.html").read_text("utf-8")
    return environment.from_string(text)


def _finalized(value: Any) -> Any:
    """Text as `printable` gives it; HTML stays as it is."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(value)
    return value


def _prose(text: str) -> Any:
    """Sentences of the report: code stands in backquotes, lines after the first explain it."""
    from markupsafe import Markup

    escaped = _CODE.sub(r"<code>\1</code>", html_text(text)).replace("\n", "<br>")
    return Markup(escaped)  # noqa: S704  # escaped before


def _size(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), ""
    except ValueError:
        return True, 0.0, value


def _sections(view: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the sections that have anything to show, by name; the first plot needs none."""
    plots = {plot["name"]: plot["title"] for plot in view["plots"][1:]}
    others = {
        "points": ("Points", ["terms"]),
        "warnings": ("Warnings", ["doubts", "implausible", "flags"]),
        "failures": ("Not measured", ["failures"]),
        "how": ("How it was measured", ["constants", "notes", "limits", "printed"]),
        "machine": ("Machine and versions", ["machine"]),
    }
    shown = {
        name: title for name, (title, keys) in others.items() if any(view.get(key) for key in keys)
    }
    return {"answer": "Answer", **plots, **shown}
