"""Plot of the peak memory of points, with the memory that was free on their devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dtsweep.inference.spread import POINT
from dtsweep.report.content import Content
from dtsweep.report.labels import point_key
from dtsweep.show.bar_rows import about_the_rest, bar_layout, bar_trace
from dtsweep.show.numbers import number
from dtsweep.show.plot import Plot
from dtsweep.show.points import PlotPoint, name_columns, plot_points
from dtsweep.show.style import MOST_BARS, in_one_line, title
from dtsweep.text import count_of, format_number, in_percent

if TYPE_CHECKING:
    import pandas as pd


_EQUAL = 0.05
"""Largest difference of all points, as a share of the least, that a plot calls equal."""


class _Unit(NamedTuple):
    """A unit of memory."""

    name: str
    size: float


def memory_plot(content: Content, *, ranks: pd.DataFrame | None = None) -> Plot:
    """Plot the largest peak of a worker, per point, the largest first.

    A mark shows the least memory that a GPU of the point's trials had free beforehand, where the
    rows of ranks have it.

    Args:
        content: of a report.
        ranks: rows of `ranks`, which have the devices' free memory; None if they are not at hand.
    """
    points = [point for point in plot_points(content) if number(point.row["memory_peak_bytes"])]
    # The most relevant ones are drawn, in the order of their memory.
    drawn = sorted(points[:MOST_BARS], key=_peak, reverse=True)
    points.sort(key=_peak, reverse=True)
    unit = _Unit("MiB", 2.0**20)
    if points and _peak(points[0]) >= 2**30:
        unit = _Unit("GiB", 2.0**30)
    free = {} if ranks is None else _free(content.study.trials, ranks)
    return Plot(
        name="memory",
        title="Peak memory of a worker",
        subtitle=in_one_line([_about_equal(points), about_the_rest(points)]),
        description=_description(points, free, unit),
        traces=_traces(drawn, free, unit),
        layout=bar_layout(drawn, x={"title": title(f"memory, {unit.name}"), "rangemode": "tozero"}),
        table=_table(points, free, unit),
    )


def _peak(point: PlotPoint) -> float:
    return float(point.row["memory_peak_bytes"])


def _about_equal(points: Sequence[PlotPoint]) -> str:
    """Say that memory hardly differs, where that is so of several points, sorted by it."""
    if len(points) < 2:
        return ""
    if _peak(points[0]) > _peak(points[-1]) * (1 + _EQUAL):
        return ""
    return f"all points are within {in_percent(_EQUAL)} of each other"


def _free(trials: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, float]:
    """Least free memory of a device before the trials of each point, by key."""
    least = ranks.groupby("attempt_id")["device_free_bytes"].min().astype("float64")
    rows = trials[[*POINT]].assign(free=trials["attempt_id"].map(least))
    rows = rows.dropna(subset=["free"])
    by_point = rows.groupby([*POINT], dropna=False)["free"].min().reset_index()
    return {point_key(row): float(row["free"]) for row in by_point.to_dict("records")}


def _traces(
    points: Sequence[PlotPoint], free: dict[str, float], unit: _Unit
) -> list[dict[str, Any]]:
    if not points:
        return []
    traces = [
        bar_trace(
            points,
            [_peak(point) / unit.size for point in points],
            name="peak of a worker",
            colour="#0072B2",
            hovertemplate="%{hovertext}<br>%{x:.4g} " + unit.name + "<extra></extra>",
        )
    ]
    places = [place for place, point in enumerate(points) if point.key in free]
    if places:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "ids": [points[place].key for place in places],
                "x": [free[points[place].key] / unit.size for place in places],
                "y": places,
                "name": "free on the device before",
                "marker": {
                    "symbol": "line-ns",
                    "size": 14,
                    "color": "#D55E00",
                    "line": {"width": 3, "color": "#D55E00"},
                },
                "hovertemplate": "free before: %{x:.4g} " + unit.name + "<extra></extra>",
            }
        )
    return traces


def _description(points: Sequence[PlotPoint], free: dict[str, float], unit: _Unit) -> str:
    if not points:
        return "No point's peak memory is known."
    most, least = points[0], points[-1]
    sentences = [
        f"Largest peak of a worker, of {count_of(len(points), 'point')}. "
        f"Most: {most.name}, {_words(_peak(most), unit)}. "
        f"Least: {least.name}, {_words(_peak(least), unit)}."
    ]
    if most.key in free:
        sentences.append(f"Free before on the device of the first: {_words(free[most.key], unit)}.")
    return " ".join(sentences)


def _words(size: float, unit: _Unit) -> str:
    return f"{format_number(size / unit.size, digits=3)} {unit.name}"


def _table(
    points: Sequence[PlotPoint], free: dict[str, float], unit: _Unit
) -> dict[str, list[str]]:
    if not points:
        return {}
    columns = name_columns(points)
    columns[f"memory {unit.name}"] = [
        format_number(_peak(point) / unit.size, digits=3) for point in points
    ]
    if free:
        columns[f"free before {unit.name}"] = [
            format_number(free.get(point.key, float("nan")) / unit.size, digits=3)
            for point in points
        ]
    return columns
