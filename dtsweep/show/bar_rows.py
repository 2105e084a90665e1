"""Horizontal bars, one row per point: places, labels and height."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtsweep.show.points import PlotPoint, shape_title
from dtsweep.show.style import MOST_BARS, layout, title
from dtsweep.text import count_of

_ROW, _FRAME = 24, 150
"""Pixels of a row, which hold a label, and of all that is around the rows."""


def about_the_rest(points: Sequence[PlotPoint]) -> str:
    """Say how many points have no bar; empty if all have one."""
    hidden = len(points) - MOST_BARS
    if hidden <= 0:
        return ""
    return f"{count_of(hidden, 'more point')} in the table alone"


def bar_trace(
    points: Sequence[PlotPoint],
    values: Sequence[float | None],
    *,
    name: str,
    colour: str,
    pattern: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Trace of one bar per point, in rows from the top."""
    marker: dict[str, Any] = {"color": colour}
    if pattern:
        marker["pattern"] = {"shape": pattern, "fgcolor": "#ffffff", "fillmode": "overlay"}
    return {
        "type": "bar",
        "orientation": "h",
        "ids": [point.key for point in points],
        "x": list(values),
        "y": list(range(len(points))),
        "hovertext": [point.hover for point in points],
        "name": name,
        "marker": marker,
        **more,
    }


_FEW = 8
"""Rows that are lower than the title of their axis is long."""


def bar_layout(points: Sequence[PlotPoint], *, x: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Layout of rows: labels are short, and hover has the whole names."""
    varying: Sequence[str] = points[0].varying if points else ()
    names = shape_title(varying)
    if len(points) < _FEW:
        # Next to few rows a long title would be cut.
        names = names.replace(" × ", " ×<br>")
    y = {
        # Else it overlaps the labels: Plotly does not count the room between them and the axis.
        "title": {**title(names), "standoff": 16},
        "tickvals": list(range(len(points))),
        "ticktext": [point.tick for point in points],
        "ticklabelstandoff": 6,
        "zeroline": False,
        "range": [len(points) - 0.5, -0.5],
    }
    rows = layout(x=x, y=y, bargap=0.25, **more)
    return rows | {"height": _FRAME + _ROW * len(points)}
