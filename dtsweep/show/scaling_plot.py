"""Plot of the speed-up of larger worlds over the smallest one of their group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dtsweep.report.content import Content, Scaling
from dtsweep.report.labels import passes_label, point_key
from dtsweep.report.tables import plain_headers, scaling_columns
from dtsweep.show.numbers import bars, number, numbers
from dtsweep.show.plot import Plot
from dtsweep.show.style import (
    GREY,
    MOST_LINES,
    SERIES,
    TITLE,
    cut,
    faded,
    label,
    layout,
    show_all,
    title,
)
from dtsweep.text import count_of, format_number

if TYPE_CHECKING:
    import pandas as pd

_SIDEWAYS = 0.02
"""Largest distance of a mark from its size, as a share of the axis."""

_MOST_GROUPS = MOST_LINES - 1
"""Largest number of groups that are shown at first, next to the ideal line."""

_LEAST_SIZES = 3
"""Number of sizes from which on a line shows more than a table."""

_SIZES = {"worker": "workers", "node": "hosts"}
_HOVER = (
    "%{text}<br>%{customdata[0]}, speed-up %{y:.3g}, efficiency %{customdata[1]}<extra></extra>"
)


class _Ladder(NamedTuple):
    """A group of worlds of several sizes, the smallest first."""

    part: Scaling
    rows: pd.DataFrame

    @property
    def name(self) -> str:
        """Kind of scaling, settings, and what all worlds of the group share."""
        first = self.rows.iloc[0]
        batch = f"{first['global_batch']}"
        if first["kind"] == "weak":
            batch = passes_label(first)
        return " · ".join([str(first["kind"]), self.part.labels.loc[self.rows.index[0]], batch])

    @property
    def multiples(self) -> list[float]:
        """Sizes of the worlds, as multiples of the smallest one."""
        sizes = self.rows[_SIZES[self.part.per]].astype("float64")
        return [float(size) for size in sizes / sizes.iloc[0]]


def scaling_plot(content: Content, *, per: Literal["worker", "node"] = "worker") -> Plot:
    """Plot speed-ups with their 95 % intervals against sizes, weak and strong; ideal is dashed.

    Of many groups, those of the highest throughput are shown, and a button or the legend brings
    the others. Bars that reach far beyond the highest speed-up are cut off. A page has the table
    in place of a plot of two sizes.

    Args:
        content: of a report.
        per: count sizes in workers or in nodes.
    """
    parts = [part for part in content.scaling if part.per == per]
    ladders = [_Ladder(part, rows) for part in parts for rows in part.groups]
    ladders.sort(key=lambda ladder: float(ladder.rows["samples_per_s"].max()), reverse=True)
    lines = ladders[:_MOST_GROUPS]
    traces = [_line(ladder, place, lines) for place, ladder in enumerate(ladders)]
    sizes = sorted({1.0, *(size for ladder in lines for size in ladder.multiples)})
    subtitle = ""
    if ladders:
        traces.append(_ideal(sizes[-1]))
        subtitle = "weak: same micro_batch × accumulation; strong: same global_batch"
    words = f"{per}s"
    ticks = {"tickvals": sizes, "ticktext": [f"{size:g} ×" for size in sizes]}
    # On few pixels, neighbouring numbers would overlap.
    if len(sizes) > 8:
        ticks = {}
    return Plot(
        name="scaling" if per == "worker" else "scaling_nodes",
        title=f"Speed-up by {words}",
        subtitle=subtitle,
        description=_description(ladders, words=words),
        is_table=len(sizes) < _LEAST_SIZES,
        more=show_all(len(ladders), "group", most=_MOST_GROUPS),
        traces=traces,
        layout=layout(
            x={"title": title(f"{words}, as a multiple of the fewest"), **ticks},
            y={"title": title("speed-up"), "range": [0, _top(lines)]},
            lines=len(lines) + 1,
        ),
        table=_table(parts),
    )


def _shift(place: int, lines: Sequence[_Ladder]) -> float:
    """Distance of a group's marks from their sizes.

    Side by side, the bars of several groups at one size can be distinguished.
    """
    count = len(lines)
    if count < 2:
        return 0.0
    largest = max(size for ladder in lines for size in ladder.multiples)
    aside = 2 * (place % count) / (count - 1) - 1
    return aside * _SIDEWAYS * (largest - 1)


def _line(ladder: _Ladder, place: int, lines: Sequence[_Ladder]) -> dict[str, Any]:
    """Trace of a group: a mark per world, next to those of other groups."""
    rows = ladder.rows.to_dict("records")
    series = SERIES[place % len(SERIES)]
    size, shift = _SIZES[ladder.part.per], _shift(place, lines)
    look = {} if place < len(lines) else {"visible": "legendonly"}
    return {
        **look,
        "type": "scatter",
        "ids": [point_key(row) for row in rows],
        "x": [multiple + shift for multiple in ladder.multiples],
        "y": numbers(row["speed_up"] for row in rows),
        "error_y": bars(rows, "speed_up") | {"color": faded(series.colour, 0.6), "width": 4},
        "mode": "lines+markers",
        "text": [label(f"{ladder.name}{_caution(row)}") for row in rows],
        "customdata": [
            [f"{count_of(int(row[size]), ladder.part.per)}", _percent(row)] for row in rows
        ],
        "hovertemplate": _HOVER,
        "name": label(cut(ladder.name, TITLE)),
        "marker": {"color": series.colour, "symbol": series.symbol, "size": 8},
        "line": {"color": series.colour, "dash": series.dash},
    }


def _caution(row: dict[Any, Any]) -> str:
    return f" ({row['caution']})" if row["caution"] else ""


def _percent(row: dict[Any, Any]) -> str:
    efficiency = number(row["efficiency"])
    return "unknown" if efficiency is None else f"{efficiency * 100:.0f} %"


def _top(ladders: Sequence[_Ladder]) -> float:
    """Upper end of the axis of speed-ups: bars that reach far beyond are cut off."""
    values = [
        value
        for ladder in ladders
        for value in (*ladder.multiples, *numbers(ladder.rows["speed_up"]))
        if value is not None
    ]
    return max(values, default=1.0) * 1.15


def _ideal(largest: float) -> dict[str, Any]:
    """Dashed line of speed-ups that are as large as the worlds."""
    return {
        "type": "scatter",
        "x": [1.0, largest],
        "y": [1.0, largest],
        "mode": "lines",
        "line": {"dash": "dash", "color": GREY},
        "hoverinfo": "skip",
        "name": "ideal",
    }


def _description(ladders: Sequence[_Ladder], *, words: str) -> str:
    if not ladders:
        return f"No group has several numbers of {words}."
    sentences = [f"{count_of(len(ladders), 'group')} of worlds, the fastest first."]
    for ladder in ladders[:_MOST_GROUPS]:
        last = ladder.rows.iloc[-1]
        size = _SIZES[ladder.part.per]
        sentences.append(
            f"{ladder.name}: from {ladder.rows.iloc[0][size]} to {last[size]} {words} a speed-up "
            f"of {format_number(float(last['speed_up']), digits=3)}, efficiency "
            f"{_percent(last.to_dict())}."
        )
    return " ".join(sentences)


def _table(parts: Sequence[Scaling]) -> dict[str, list[str]]:
    """Steps from the smallest world of a group to a larger one, as the terminal has them."""
    columns: dict[str, list[str]] = {}
    for part in parts:
        own = scaling_columns(part, groups=part.groups)
        count = len(own["sync"])
        own = {"kind": [str(part.rows["kind"].iloc[0])] * count, **own}
        own.setdefault("caution", [""] * count)
        for header, cells in own.items():
            columns.setdefault(header, []).extend(cells)
    if not any(columns.get("caution", ())):
        columns.pop("caution", None)
    return plain_headers(columns)
