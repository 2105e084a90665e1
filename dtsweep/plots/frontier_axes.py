"""Axes of the frontier plot: they hold all means, and error bars that are not far beyond them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.plots.frontier_traces import kind_of
from dtsweep.plots.numbers import number
from dtsweep.plots.points import PlotPoint
from dtsweep.plots.style import layout, title
from dtsweep.report.plot_axes import axis_for, tick_label

_REACH = 3.0
"""Bars make an axis longer up to this multiple of the largest mean, or part of the smallest."""


def layout_of(points: Sequence[PlotPoint], *, lines: int) -> dict[str, Any]:
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


def about_cut_bars(points: Sequence[PlotPoint]) -> str:
    """Say that bars reach beyond the axes, where some do."""
    shown = [point for point in points if point.is_shown]
    for name in ("latency_s", "samples_per_s"):
        inside = _within_reach(points, name) if points else []
        for point in shown:
            if any(not _is_inside(end, inside, name) for end in _ends(point, name)):
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


def _is_inside(end: float, inside: Sequence[float], name: str) -> bool:
    """True if an end of a bar is within an axis; the one of throughput begins at 0."""
    least = 0.0 if name == "samples_per_s" else min(inside)
    return least <= end <= max(inside)


def _ends(point: PlotPoint, name: str) -> list[float]:
    """Both ends of an interval, as far as they are known."""
    ends = (number(point.row[f"{name}_{end}"]) for end in ("low", "high"))
    return [end for end in ends if end is not None]
