"""Plot of the parts of a step, which say where its time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dtsweep.report.content import Content
from dtsweep.report.limits import bounds_counted, rows_of_bounds
from dtsweep.report.tables import limit_columns, plain_headers
from dtsweep.show.bar_rows import about_the_rest, bar_layout, bar_trace
from dtsweep.show.numbers import number
from dtsweep.show.plot import Plot
from dtsweep.show.points import (
    PlotPoint,
    frame_of_points,
    name_columns,
    plot_points,
)
from dtsweep.show.style import MOST_BARS, in_one_line, label, title
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_PARTS = {
    "input_share": ("loading batches", "#A87200", "."),
    "exchange_share": ("exposed communication", "#D55E00", "/"),
    "waiting_share": ("waiting for the slowest worker", "#CC79A7", "x"),
    "work_share": ("device work", "#0072B2", ""),
}
"""Parts of a step, which add up to it: words, colour, and a pattern for those who see none."""

_HOVER = "%{hovertext}<br>%{fullData.name}: %{customdata[0]}<br>%{customdata[1]}<extra></extra>"


class _Bar(NamedTuple):
    """A point with the row of its bound."""

    point: PlotPoint
    bound: Mapping[Any, Any]
    place: int
    """Of that row in the table of bounds."""


def shares_plot(content: Content) -> Plot:
    """Plot the parts of the mean step of each point, in percent of it.

    The shares are those of `dtsweep.analysis.bottleneck`. A part that was not measured is missing.
    Noise may bring a part below 0; it is then drawn as 0, and hover has what was measured. Points
    on frontiers come first; points without a known part above 0 are left out.
    """
    points = plot_points(content)
    bounds = content.bounds.iloc[:0]
    if points:
        bounds = rows_of_bounds(frame_of_points(points), content.bounds)
    bars = [
        _Bar(point, bound, place)
        for place, (point, bound) in enumerate(zip(points, bounds.to_dict("records"), strict=True))
        if any(number(bound[name]) for name in _PARTS)
    ]
    bounds = bounds.iloc[[bar.place for bar in bars]]
    drawn = bars[:MOST_BARS]
    return Plot(
        name="shares",
        title="Parts of a step",
        subtitle=in_one_line([_about_noise(drawn), about_the_rest([bar.point for bar in bars])]),
        description=_description(bars, bounds),
        traces=_traces(drawn),
        layout=_layout(drawn),
        table=_table(bars, bounds),
    )


def _traces(bars: Sequence[_Bar]) -> list[dict[str, Any]]:
    if not bars:
        return []
    return [
        bar_trace(
            [bar.point for bar in bars],
            [_drawn(bar.bound[column]) for bar in bars],
            name=words,
            colour=colour,
            pattern=pattern,
            customdata=[
                [_percent(bar.bound[column]), label(str(bar.bound["bound_reason"]))] for bar in bars
            ],
            hovertemplate=_HOVER,
        )
        for column, (words, colour, pattern) in _PARTS.items()
    ]


def _drawn(share: Any) -> float | None:
    """Length of a part in percent; noise below 0 has none."""
    value = number(share)
    return None if value is None else max(0.0, value * 100)


def _percent(share: Any) -> str:
    value = number(share)
    if value is None:
        return "unknown"
    noise = " (noise)" if value < 0 or value > 1 else ""
    return f"{value * 100:.1f} %{noise}"


def _layout(bars: Sequence[_Bar]) -> dict[str, Any]:
    totals = [sum(_drawn(bar.bound[name]) or 0.0 for name in _PARTS) for bar in bars]
    return bar_layout(
        [bar.point for bar in bars],
        x={"title": title("share of the mean step, %"), "range": [0, max([100.0, *totals])]},
        barmode="stack",
    )


def _about_noise(bars: Sequence[_Bar]) -> str:
    noisy = sum(any((number(bar.bound[name]) or 0.0) < 0 for name in _PARTS) for bar in bars)
    if not noisy:
        return ""
    return f"noise: a part of {count_of(noisy, 'point')} was measured below 0, and is drawn as 0"


def _description(bars: Sequence[_Bar], bounds: pd.DataFrame) -> str:
    if not bars:
        return "No part of any point's step is known."
    shown = bounds[[bar.point.is_shown for bar in bars]]
    on_frontiers = ""
    if len(shown):
        on_frontiers = f" {bounds_counted(shown).text}"
    first = bars[0]
    parts = ", ".join(
        f"{words} {_percent(first.bound[name])}" for name, (words, *_) in _PARTS.items()
    )
    return (
        f"Parts of the mean step of {count_of(len(bars), 'point')}, which add up to it."
        f"{on_frontiers} {first.point.name}: {parts}."
    )


def _table(bars: Sequence[_Bar], bounds: pd.DataFrame) -> dict[str, list[str]]:
    if not bars:
        return {}
    parts = {
        words: [_percent(value) for value in bounds[name]] for name, (words, *_) in _PARTS.items()
    }
    return plain_headers(
        {**name_columns([bar.point for bar in bars]), **parts, **limit_columns(bounds)}
    )
