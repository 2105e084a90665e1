"""Plot of step time against throughput, with a line for each frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.plots.numbers import bars, number
from dtsweep.plots.plot import Plot
from dtsweep.plots.points import (
    PlotPoint,
    best_sentence,
    frame_of_points,
    name_columns,
    plain_headers,
    points_of,
)
from dtsweep.plots.style import (
    COLOURS,
    FAINT,
    FILLS,
    FORMS,
    GREY,
    MOST_LINES,
    MOST_ON_DEMAND,
    TITLE,
    about_lines,
    cut,
    is_on_demand,
    joined,
    label,
    layout,
    title,
)
from dtsweep.report.content import Content
from dtsweep.report.frontiers import Frontier
from dtsweep.report.plot_axes import axis_for, tick_label
from dtsweep.report.tables import caution_columns, measured_columns
from dtsweep.text import count_of

_HOVER = "%{text}<br>%{x:.4g} ms, %{y:.4g} samples/s<br>%{customdata}<extra></extra>"


def frontier_plot(content: Content) -> Plot:
    """Plot step time in ms against samples/s, a line for each frontier.

    Error bars are 95 % intervals, within one launch where a point has only one (hover says which);
    what reaches beyond all points is cut off. Points that are beaten are faint, without bars. Of
    modes that change the update, points with one worker are left out where there are others. Knees
    and recommended points have a ring of their own.
    """
    points = [point for point in points_of(content) if _is_drawn(point)]
    frontiers = [
        frontier
        for frontier in content.frontiers
        if any(point.frontier is frontier for point in points)
    ]
    # Points of a line stand in the order of the frontier, from the fastest step.
    points.sort(key=lambda point: float(point.row["latency_s"]))
    traces: list[dict[str, Any]] = []
    for place, frontier in enumerate(frontiers[: MOST_LINES + MOST_ON_DEMAND]):
        symbol = _symbol(frontier, frontiers)
        of_it = [point for point in points if point.frontier is frontier]
        for is_line in (False, True):
            drawn = [point for point in of_it if point.is_shown == is_line]
            if drawn:
                trace = _points(frontier, drawn, symbol=symbol, is_line=is_line)
                traces.append(trace | {"visible": is_on_demand(place)})
    traces += _rings([point for point in points if point.frontier in frontiers[:MOST_LINES]])
    return Plot(
        name="frontier",
        title="Step time against throughput",
        subtitle=joined([_about_bars(points), about_lines(len(frontiers), "more frontier")]),
        description=_description(points, frontiers),
        traces=traces,
        layout=_layout(points, lines=sum(trace.get("showlegend", True) for trace in traces)),
        table=_table(points, frontiers),
    )


def _is_drawn(point: PlotPoint) -> bool:
    is_known = all(number(point.row[name]) is not None for name in ("latency_s", "samples_per_s"))
    is_beaten = not point.row["on_frontier"] and isinstance(point.row["standing"], str)
    return is_known and (point.is_shown or is_beaten)


def _symbol(frontier: Frontier, frontiers: Sequence[Frontier]) -> str:
    """Symbol of a frontier: the semantics gives its form, the model its fill."""
    models = list(dict.fromkeys(other.model_digest for other in frontiers))
    form, _ = FORMS.get(frontier.semantics, FORMS["unknown"])
    return form + FILLS[models.index(frontier.model_digest) % len(FILLS)]


def _points(
    frontier: Frontier, points: Sequence[PlotPoint], *, symbol: str, is_line: bool
) -> dict[str, Any]:
    """Trace of points; those on the frontier are joined by a line, others are faint."""
    rows = [point.row for point in points]
    style: dict[str, Any] = {"mode": "markers", "opacity": FAINT}
    if is_line:
        style = {
            "mode": "lines+markers",
            "error_x": bars(rows, "latency_s", unit=1e3),
            "error_y": bars(rows, "samples_per_s"),
        }
    colour = COLOURS.get(frontier.semantics, GREY)
    _, dash = FORMS.get(frontier.semantics, FORMS["unknown"])
    return {
        "type": "scatter",
        "ids": [point.key for point in points],
        "x": [float(row["latency_s"]) * 1e3 for row in rows],
        "y": [float(row["samples_per_s"]) for row in rows],
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "line": {"color": colour, "dash": dash},
        "text": [point.hover for point in points],
        "customdata": [point.launches for point in points],
        "hovertemplate": _HOVER,
        "name": label(cut(frontier.name, TITLE)),
        "legendgroup": label(frontier.title),
        "showlegend": is_line,
        **style,
    }


def _rings(points: Sequence[PlotPoint]) -> list[dict[str, Any]]:
    """Traces that mark knees and recommended points."""
    marked = {
        "knee": ("circle-open", [p for p in points if p.is_shown and p.row["knee"]]),
        "recommended": ("star-open", [p for p in points if p.is_recommended]),
    }
    return [
        {
            "type": "scatter",
            "ids": [point.key for point in ringed],
            "x": [float(point.row["latency_s"]) * 1e3 for point in ringed],
            "y": [float(point.row["samples_per_s"]) for point in ringed],
            "mode": "markers",
            "marker": {"symbol": symbol, "size": 18, "color": GREY, "line": {"width": 2}},
            "hoverinfo": "skip",
            "name": name,
        }
        for name, (symbol, ringed) in marked.items()
        if ringed
    ]


def _layout(points: Sequence[PlotPoint], *, lines: int) -> dict[str, Any]:
    x: dict[str, Any] = {"title": title("step time, ms")}
    y: dict[str, Any] = {"title": title("samples/s"), "rangemode": "tozero"}
    if points:
        axis = axis_for([float(point.row["latency_s"]) * 1e3 for point in points])
        ends = [axis.low, axis.high]
        if axis.is_logarithmic:
            ends = [math.log10(end) for end in ends]
        x |= {
            "type": "log" if axis.is_logarithmic else "linear",
            "range": ends,
            "tickvals": list(axis.ticks),
            "ticktext": [tick_label(value) for value in axis.ticks],
        }
        rates = [float(point.row["samples_per_s"]) for point in points]
        y["range"] = [0, axis_for(rates, from_zero=True).high]
    return layout(x=x, y=y, lines=lines)


def _about_bars(points: Sequence[PlotPoint]) -> str:
    """Say that some error bars are within one launch, where there are such bars."""
    within = sum(point.is_shown and point.row["interval"] == "launch" for point in points)
    if not within:
        return ""
    return f"bars of {count_of(within, 'point')} are within one launch: another may lie outside"


def _description(points: Sequence[PlotPoint], frontiers: Sequence[Frontier]) -> str:
    if not points:
        return "No point has both a step time and a throughput."
    sentences = [
        f"{count_of(len(points), 'point')} on {count_of(len(frontiers), 'line')}, step time "
        "across and throughput up."
    ]
    for frontier in frontiers[:MOST_LINES]:
        shown = [point for point in points if point.frontier is frontier and point.is_shown]
        if shown:
            sentences.append(
                f"{frontier.name}: {count_of(len(shown), 'point')} on the frontier. "
                f"{best_sentence(shown)}"
            )
    return " ".join(sentences)


def _table(points: Sequence[PlotPoint], frontiers: Sequence[Frontier]) -> dict[str, list[str]]:
    if not points:
        return {}
    # By frontier, in their order; Python's sort keeps that of the points.
    points = sorted(points, key=lambda point: frontiers.index(point.frontier))
    rows = frame_of_points(points)
    marks = {
        "recommended": [point.is_recommended for point in points],
        "knee": [bool(point.is_shown and point.row["knee"]) for point in points],
        "on the frontier": [bool(point.row["on_frontier"]) for point in points],
    }
    columns = {
        header: ["yes" if is_so else "" for is_so in cells]
        for header, cells in marks.items()
        if any(cells)
    }
    return plain_headers(
        {
            **name_columns(points),
            **measured_columns(rows, varying=()),
            "launches": [str(point.row["launches"]) for point in points],
            **columns,
            **caution_columns([point.row["caution"] for point in points]),
        }
    )
