"""Plot of step time against throughput, with a line for each frontier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.inference.verdicts import Answer
from dtsweep.report.answer import goal_in_words
from dtsweep.report.content import Content
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import trial_label
from dtsweep.show.frontier_traces import kind_of, legend_keys, rings, symbol_of, traces_of
from dtsweep.show.numbers import number
from dtsweep.show.plot import Plot
from dtsweep.show.points import PlotPoint, best_sentence, plot_points
from dtsweep.show.style import MOST_LINES, TITLE, cut, layout, show_all, title
from dtsweep.text import count_of

_SEPARATE = (
    "Points of different kinds of update are not compared with each other, because they train "
    "differently."
)

_NO_LOSS = "Step time and throughput say nothing about the loss."

_FASTEST = {Answer.BEST: "is the fastest", Answer.EQUAL: "is as fast as any"}
_BEST = {Answer.BEST: "is the best", Answer.EQUAL: "is as good as any"}
"""Verdicts on a recommended point, by throughput and by other goals; of others, it leads so far."""


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
    for place, frontier in enumerate(frontiers):
        of_it = [point for point in points if point.frontier is frontier]
        look = {} if place < MOST_LINES else {"visible": "legendonly"}
        drawn = traces_of(frontier, of_it, symbol=symbol_of(frontier, frontiers))
        traces += [trace | look for trace in drawn]
    main = [point for point in points if point.frontier in frontiers[:MOST_LINES]]
    traces += [*rings(main), *legend_keys(main)]
    return Plot(
        name="frontier",
        title=_title(content),
        subtitle=_about_bars(points),
        description=_description(points, frontiers),
        note=_note(points, frontiers),
        more=show_all(len(frontiers), "frontier"),
        traces=traces,
        layout=_layout_of(points, traces),
    )


def _title(content: Content) -> str:
    """Say what the plot shows, and of one recommendation how its point stands."""
    about = "Step time against throughput"
    if len(content.recommendations) != 1:
        return about
    (one,) = content.recommendations
    goal, verdicts = goal_in_words(one).replace(" of exact", " among exact"), _BEST
    if one.objective.name == "samples_per_s":
        goal, verdicts = goal.removeprefix(" by samples_per_s"), _FASTEST
    point = cut(trial_label(one.point, content.varying), TITLE)
    return f"{about}: {point} {verdicts.get(one.answer, 'leads so far')}{goal}"


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
            "Hollow marks may be beaten: another point has better means, but launches can't tell."
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
                f"{frontier.name}: {count_of(len(shown), 'point')} on the frontier. "
                f"{best_sentence(shown)}"
            )
    return " ".join(sentences)


_REACH = 3.0
"""Bars make an axis longer up to this multiple of the largest mean, or part of the smallest."""

_MARGIN = 0.06
"""Free room at the end of an axis, as a share of it."""

_LOGARITHMIC_FROM = 10.0
"""Largest over smallest step time beyond which their axis is logarithmic."""


def _layout_of(points: Sequence[PlotPoint], traces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Layout whose axes have room for all means; longer bars are cut at the edge."""
    x: dict[str, Any] = {"title": title("step time, ms"), "tickformat": ",~g"}
    y: dict[str, Any] = {"title": title("samples/s"), "rangemode": "tozero"}
    if points:
        times = _within_reach(points, "latency_s", unit=1e3)
        low, high = min(times), max(times)
        if high > low * _LOGARITHMIC_FROM:
            # Ticks at 1, 2 and 5 times the powers of ten.
            x |= {"type": "log", "dtick": "D2"}
            low, high = math.log10(low), math.log10(high)
        room = (high - low or low) * _MARGIN
        x["range"] = [low - room, high + room]
        y["range"] = [0, max(_within_reach(points, "samples_per_s")) * (1 + _MARGIN)]
    entries = sum(trace.get("showlegend", "visible" not in trace) for trace in traces)
    return layout(x=x, y=y, lines=entries)


def _within_reach(points: Sequence[PlotPoint], name: str, *, unit: float = 1.0) -> list[float]:
    """Means of all points, and the ends of decided ones' bars that are not far beyond them."""
    means = [float(point.row[name]) * unit for point in points]
    least, most = min(means) / _REACH, max(means) * _REACH
    ends = [
        number(point.row[f"{name}_{end}"])
        for point in points
        if kind_of(point) == "decided"
        for end in ("low", "high")
    ]
    return means + [end * unit for end in ends if end is not None and least <= end * unit <= most]
