"""The HTML text of a page from its template, `page.html`, with all text of results escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    "memory": "Memory",
    "steps": "Trials",
    "how": "Method",
    "machine": "Machine",
}
"""Names of sections in the navigation, where their titles are longer."""


def html_of(view: Mapping[str, Any], *, raw: Mapping[str, str], title: str, made: str) -> str:
    """Write the page as HTML."""
    from markupsafe import Markup

    return _template().render(
        {
            **view,
            **{name: Markup(text) for name, text in raw.items()},  # noqa: S704  # our own files
            "title": title,
            "made": made,
            "sections": _sections(view),
            "short": _SHORT,
            "no_answer": view["none"],
            "main_doubts": [doubt.partition("\n")[0] for doubt in view["doubts"][:_DOUBTS_SHOWN]],
            "worth_rule": WORTH_RULE,
            "worth_shown": _WORTH_SHOWN,
            "points": view["table"],
            "failures": [_failures_of(group) for group in view["failures"]],
            "flags": _columns(
                view["flags"], {"flag": "flag", "count": "trials", "meaning": "meaning"}
            ),
            "printed": view["sections"],
        }
    )


@cache
def _template() -> Template:
    """The page, with every text escaped, and without characters that are not printable."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "prose": _prose,
        # Values of a setting, each once: numbers first, by size, then texts.
        "by_size": lambda values: sorted(set(values), key=_size),
        "rows": lambda columns: zip(*columns.values(), strict=True),
        "count_of": count_of,
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
    """Titles of the sections that have anything to show, by name."""
    plots = {plot["name"]: plot["title"] for plot in view["plots"] if plot["name"] != "frontier"}
    others = {
        "steps": ("Step times of a trial", view["traces"]),
        "points": ("Points", view["table"]["ids"]),
        "warnings": ("Warnings", view["doubts"] or view["implausible"] or view["flags"]),
        "failures": ("Not measured", view["failures"]),
        "how": (
            "How it was measured",
            view["constants"] or view["notes"] or view["limits"] or view["sections"],
        ),
        "machine": ("Machine and versions", view["machine"]),
    }
    shown = {name: title for name, (title, content) in others.items() if content}
    return {"answer": "Answer", **plots, **shown}


def _columns(rows: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Table of rows: a column for each of these keys; empty without rows."""
    if not rows:
        return {}
    return {header: [str(row[key]) for row in rows] for key, header in headers.items()}


def _failures_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """Trials of one status: the number of trials, and the log of one, for each reason.

    Those that were skipped on purpose are shown on demand.
    """
    columns = _columns(group["rows"], {"count": "trials", "reason": "reason", "log": "log"})
    if not any(columns["log"]):
        del columns["log"]
    title = f"{group['status']}: {group['count']} ({group['meaning']})"
    is_skipped = group["status"] == "skipped"
    if is_skipped:
        first, *others = columns["reason"]
        title = f"skipped: {group['count']}: {first}"
        if others:
            title += f", and {count_of(len(others), 'more reason')}"
    return {
        "title": title,
        "caption": f"Trials with status {group['status']}, by reason",
        "columns": columns,
        "is_on_demand": is_skipped,
    }
