"""Colours, symbols, lines and patterns of plots, and text of others for Plotly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dtsweep.escape import html_text
from dtsweep.text import count_of

COLOURS = {
    "exact": "#0072B2",
    "lossy": "#CC79A7",
    "stale": "#D55E00",
    "local": "#009E73",
    "not_exchanged": "#A87200",
    "unknown": "#767676",
    "inference": "#0072B2",
}
"""Colour of each semantics, after the colour-blind-safe palette of Okabe and Ito.

Each colour has a contrast of at least 3 : 1 to white. The orange and the grey of the palette are
darker here, which it takes.
"""

GREY = "#767676"
"""Colour of reference lines and rings."""

DARK = {
    "#0072B2": "#56B4E9",
    "#A87200": "#E69F00",
    "#767676": "#A6A6A6",
    "#333333": "#D9D9D9",
    "#3D94CC": "#9BD3F7",
}
"""Colours that a dark page replaces; the others stay. Each has a contrast of 3 : 1 to #15181d."""

FORMS = {
    "exact": ("circle", "solid"),
    "lossy": ("square", "dash"),
    "stale": ("triangle-up", "dot"),
    "local": ("diamond", "dashdot"),
    "not_exchanged": ("cross", "longdash"),
    "unknown": ("x", "longdashdot"),
    "inference": ("pentagon", "8px,3px"),
}
"""Symbol and line of each semantics: both differ, for those who don't see the colour."""

MORE_FORMS = {
    "stale": ("triangle-down", "triangle-right", "triangle-left"),
    "local": ("diamond-tall", "diamond-wide", "star-diamond"),
    "inference": ("hexagon",),
}
"""Symbols of further kinds of one semantics."""

FILLS = ("", "-dot")
"""Endings of a symbol's name, one for each model in turn; hollow symbols are undecided points."""


class _Series(NamedTuple):
    """Look of one line among several."""

    colour: str
    symbol: str
    dash: str


SERIES = (
    _Series("#0072B2", "circle", "solid"),
    _Series("#D55E00", "square", "dash"),
    _Series("#009E73", "diamond", "dashdot"),
    _Series("#CC79A7", "triangle-up", "dot"),
    _Series("#A87200", "cross", "longdash"),
    _Series("#8A6FD1", "x", "longdashdot"),
    _Series("#333333", "star", "solid"),
    _Series("#3D94CC", "hexagon", "dash"),
)
"""Lines of one plot; more can't be distinguished."""

MOST_LINES = len(SERIES)
"""Largest number of lines that a plot shows before a reader asks for all."""

MOST_BARS = 30
"""Largest number of points with a bar of their own."""

LABEL = 34
"""Most characters of a tick's label."""

TITLE = 60
"""Most characters of a name in a legend."""

_HEIGHT, _LEGEND_LINE = 400, 20
"""Pixels of a plot without a legend, and of a line of its legend."""

FAINT = 0.35
"""Opacity of points that are beaten."""


def label(text: str) -> str:
    """Text of others for Plotly, which takes a subset of HTML and LaTeX for its own.

    Every text of results in traces and layouts passes here, and stands in `text`, `customdata`,
    `name` or `ticktext`, never in a template.

    >>> label('<a href="x">a & b</a>'), label("$x$")
    ('&lt;a href="x"&gt;a &amp; b&lt;/a&gt;', '&#36;x&#36;')
    """
    # Plotly knows no entity of quotes; without tags they mean nothing.
    text = html_text(text).replace("&quot;", '"').replace("&#x27;", "'")
    return text.replace("$", "&#36;")


def cut(text: str, most: int = LABEL) -> str:
    """Text of at most so many characters, with its beginning and its end.

    >>> cut("a" * 20 + "b" * 30, 11)
    'aaaaa…bbbbb'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def faded(colour: str, opacity: float) -> str:
    """Colour that lets what is behind it through.

    >>> faded("#0072B2", 0.6)
    '#0072B299'
    """
    return f"{colour}{round(opacity * 255):02X}"


def layout(
    *, x: Mapping[str, Any], y: Mapping[str, Any], lines: int = 0, **more: Any
) -> dict[str, Any]:
    """Layout that all plots with two axes share.

    Args:
        x: the axis across.
        y: the axis up.
        lines: number of entries in the legend; each may take a line.
        more: of this plot.
    """
    return {
        "height": _HEIGHT + _LEGEND_LINE * lines,
        # At the lower edge, which keeps it clear of the axis however many lines it has.
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "closest",
        "xaxis": {"automargin": True, **x},
        "yaxis": {"automargin": True, **y},
        **more,
    }


def title(text: str) -> dict[str, str]:
    """Title of an axis: quantity and unit."""
    return {"text": text}


def show_all(count: int, noun: str, *, most: int = MOST_LINES) -> str:
    """Words of the button that shows all lines; empty if they are shown.

    >>> show_all(9, "group"), show_all(8, "group")
    ('Show all 9 groups', '')
    """
    if count <= most:
        return ""
    return f"Show all {count_of(count, noun)}"


def in_one_line(parts: Sequence[str], *, mark: str = "; ") -> str:
    """Join the parts of a subtitle that are not empty."""
    return mark.join(filter(None, parts))
