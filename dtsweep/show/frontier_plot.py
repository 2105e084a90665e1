"""Plot of step time against throughput, with a line for each frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.report.content import Content
from dtsweep.report.frontiers import Frontier
from dtsweep.report.plot_axes import axis_for, tick_label
from dtsweep.report.tables import caution_columns, measured_columns, plain_headers
from dtsweep.show.frontier_traces import kind_of, legend_keys, rings, symbol_of, traces_of
from dtsweep.show.numbers import number
from dtsweep.show.plot import Plot
from dtsweep.show.points import (
    PlotPoint,
    best_sentence,
    frame_of_points,
    name_columns,
    plot_points,
)
from dtsweep.show.style import MOST_LINES, about_lines, in_one_line, layout, title
from dtsweep.text import count_of

_SEPARATE = (
    "Points of different kinds of update are not compared with each other, because they train "
    "differently."
)

_NO_LOSS = "Step time and throughput say nothing about the loss."


def frontier_plot(content: Content) -> Plot:
    """Plot step time in ms against samples/s, a rising line for each frontier.

    Error bars are 95 % intervals, within one launch where a point has only one (hover says which);
    very long ones are cut off. Undecided points are hollow and on no line; beaten ones are faint,
    without bars. Of modes that change the update, points with one worker are left out where there
    are others. Knees and recommended points have a ring of their own.
    """
    points = [point for point in plot_points(content) if _is_drawn(point)]
    frontiers = [
        frontier
        for frontier in content.frontiers
        if any(point.frontier is frontier for point in points)
    ]
    # Points of a line stand in the order of the frontier, from the fastest step.
    points.sort(key=lambda point: float(point.row["latency_s"]))
    traces: list[dict[str, Any]] = []
    for frontier in frontiers[:MOST_LINES]:
        of_it = [point for point in points if point.frontier is frontier]
        traces += traces_of(frontier, of_it, symbol=symbol_of(frontier, frontiers))
    main = [point for point in points if point.frontier in frontiers[:MOST_LINES]]
    traces += [*rings(main), *legend_keys(main)]
    return Plot(
        name="frontier",
        title="Step time against throughput",
        subtitle=in_one_line(
            [
                _about_cut_bars(points),
                _about_bars(points),
                about_lines(len(frontiers), "more frontier"),
            ]
        ),
        description=_description(points, frontiers),
        note=_note(points, frontiers),
        traces=traces,
        layout=_layout_of(points, lines=sum(trace.get("showlegend", True) for trace in traces)),
        table=_table(points, frontiers),
    )


def _is_drawn(point: PlotPoint) -> bool:
    is_known = all(number(point.row[name]) is not None for name in ("latency_s", "samples_per_s"))
    return is_known and (point.is_shown or kind_of(point) == "beaten")


def _about_bars(points: Sequence[PlotPoint]) -> str:
    """Say that some error bars are within one launch, where there are such bars."""
    within = sum(point.is_shown and point.row["interval"] == "launch" for point in points)
    if not within:
        return ""
    return f"bars of {count_of(within, 'point')} are within one launch: another may lie outside"


def _note(points: Sequence[PlotPoint], frontiers: Sequence[Frontier]) -> str:
    """Say under the plot how to read it."""
    if not points:
        return ""
    sentences = []
    if any(kind_of(point) == "undecided" for point in points):
        sentences.append(
            "Hollow marks are undecided: another point has better means, but launches can't tell."
        )
    alone = [frontier for frontier in frontiers if len(frontier.best) > len(frontier.shown)]
    if alone:
        kinds = dict.fromkeys(frontier.update.replace("_", " ") for frontier in alone)
        sentences.append(f"Points with one worker are left out of: {', '.join(kinds)}.")
    if len({frontier.update for frontier in frontiers}) > 1:
        sentences.append(_SEPARATE)
    return " ".join([*sentences, _NO_LOSS])


def _description(points: Sequence[PlotPoint], frontiers: Sequence[Frontier]) -> str:
    if not points:
        return "No point has both a step time and a throughput."
    sentences = [
        f"{count_of(len(points), 'point')} of {count_of(len(frontiers), 'frontier')}, step time "
        "across and throughput up."
    ]
    for frontier in frontiers[:MOST_LINES]:
        shown = [point for point in points if point.frontier is frontier and point.is_shown]
        if shown:
            sentences.append(
                f"{frontier.name}: {count_of(len(shown), 'point')} on the frontier, "
                f"{sum(kind_of(point) == 'undecided' for point in shown)} undecided. "
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


_REACH = 3.0
"""Bars make an axis longer up to this multiple of the largest mean, or part of the smallest."""


def _layout_of(points: Sequence[PlotPoint], *, lines: int) -> dict[str, Any]:
    """Layout whose axes have ticks at round numbers; `lines` is the number of legend entries."""
    x: dict[str, Any] = {"title": title("step time, ms")}
    y: dict[str, Any] = {"title": title("samples/s"), "rangemode": "tozero"}
    if points:
        axis = axis_for(_within_reach(points, "latency_s", unit=1e3))
        ends = [axis.low, axis.high]
        if axis.is_logarithmic:
            ends = [math.log10(end) for end in ends]
        x |= {
            "type": "log" if axis.is_logarithmic else "linear",
            "range": ends,
            "tickvals": list(axis.ticks),
            "ticktext": [tick_label(value) for value in axis.ticks],
        }
        rates = _within_reach(points, "samples_per_s")
        y["range"] = [0, axis_for(rates, from_zero=True).high]
    return layout(x=x, y=y, lines=lines)


def _about_cut_bars(points: Sequence[PlotPoint]) -> str:
    """Say that bars reach beyond the axes, where some do."""
    if not points:
        return ""
    for name in ("latency_s", "samples_per_s"):
        inside = _within_reach(points, name)
        # The axis of throughput begins at 0.
        least = 0.0 if name == "samples_per_s" else min(inside)
        ends = [end for point in points if point.is_shown for end in _ends(point, name)]
        if any(not least <= end <= max(inside) for end in ends):
            return "longer error bars are cut at the edge"
    return ""


def _within_reach(points: Sequence[PlotPoint], name: str, *, unit: float = 1.0) -> list[float]:
    """Means of all points, and the ends of decided ones' bars that are not far beyond them."""
    means = [float(point.row[name]) * unit for point in points]
    least, most = min(means) / _REACH, max(means) * _REACH
    ends = [
        end * unit for point in points if kind_of(point) == "decided" for end in _ends(point, name)
    ]
    return means + [end for end in ends if least <= end <= most]


def _ends(point: PlotPoint, name: str) -> list[float]:
    """Both ends of an interval, as far as they are known."""
    ends = (number(point.row[f"{name}_{end}"]) for end in ("low", "high"))
    return [end for end in ends if end is not None]
