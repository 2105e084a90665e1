"""Plot of the exchange: its time on its own against what a step waits for of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dtsweep.plots.numbers import bars, number
from dtsweep.plots.plot import Plot
from dtsweep.plots.points import PlotPoint, means_by_point, name_columns, points_of
from dtsweep.plots.style import COLOURS, FORMS, GREY, diagonal, faded, label, layout, title
from dtsweep.report.content import Content
from dtsweep.text import count_of, format_number, format_share

_HOVER = (
    "%{text}<br>%{x:.4g} ms on its own, %{y:.4g} ms exposed<br>overlap %{customdata}<extra></extra>"
)
_SUBTITLE = (
    "below the dashed line, other work hides a part of the exchange; longer error bars are cut"
)


class _Exchange(NamedTuple):
    """A point with its times of exchange in ms."""

    point: PlotPoint
    alone_ms: float
    exposed_ms: float
    low_ms: float | None
    high_ms: float | None

    @property
    def overlap(self) -> str:
        """Share of the exchange that other work hides, in percent.

        Noise may bring it below 0 or above 100 %; it is written as these.
        """
        share = 1 - self.exposed_ms / self.alone_ms
        return f"{format_share(share, math.nan, math.nan)} %"


def exchange_plot(content: Content) -> Plot:
    """Plot the exposed exchange of a step against the exchange on its own, both in ms.

    On its own is the mean of `exchange_isolated_s`; exposed is `exchange_share` of the mean step.
    On the dashed line nothing hides behind other work, at 0 all does. Bars are 95 % intervals; the
    axes hold the points, and longer bars are cut off. An exposed exchange below 0 is noise, drawn
    at 0.
    """
    isolated = means_by_point(content.study.trials, ["exchange_isolated_s"])
    of_points = [_exchange_of(point, isolated.get(point.key, {})) for point in points_of(content)]
    exchanges = [exchange for exchange in of_points if exchange is not None]
    traces = [
        _points(semantics, [e for e in exchanges if e.point.frontier.semantics == semantics])
        for semantics in dict.fromkeys(e.point.frontier.semantics for e in exchanges)
    ]
    if exchanges:
        largest = max(exchange.alone_ms for exchange in exchanges)
        traces.append(diagonal(0.0, largest, name="nothing hides"))
    return Plot(
        name="exchange",
        title="Exchange and overlap",
        subtitle=_SUBTITLE if exchanges else "",
        description=_description(exchanges),
        traces=traces,
        layout=layout(
            x={
                "title": title("exchange on its own, ms"),
                **_range([e.alone_ms for e in exchanges]),
            },
            y={"title": title("exposed exchange, ms"), **_range([e.exposed_ms for e in exchanges])},
            lines=len(traces),
        ),
        table=_table(exchanges),
    )


def _range(times: Sequence[float]) -> dict[str, Any]:
    """Ends of an axis that holds the points; bars may reach beyond it."""
    high = max(times, default=0.0)
    # A little below 0, so that marks at 0 are whole.
    return {"range": [-0.04 * high, 1.15 * high]} if high else {"rangemode": "tozero"}


def _exchange_of(point: PlotPoint, means: Mapping[str, float]) -> _Exchange | None:
    """Times of a point; None where one is unknown, or there is no exchange."""
    alone = means.get("exchange_isolated_s")
    share, low, high = (number(point.row[f"exchange_share{end}"]) for end in ("", "_low", "_high"))
    step = number(point.row["step_mean_s"])
    if not alone or share is None or step is None:
        return None
    ends = [None if end is None else end * step * 1e3 for end in (low, high)]
    return _Exchange(
        point=point,
        alone_ms=alone * 1e3,
        exposed_ms=max(0.0, share * step * 1e3),
        low_ms=ends[0],
        high_ms=ends[1],
    )


def _points(semantics: str, exchanges: Sequence[_Exchange]) -> dict[str, Any]:
    symbol, _ = FORMS.get(semantics, FORMS["unknown"])
    intervals = [{"ms": e.exposed_ms, "ms_low": e.low_ms, "ms_high": e.high_ms} for e in exchanges]
    return {
        "type": "scatter",
        "mode": "markers",
        "ids": [exchange.point.key for exchange in exchanges],
        "x": [exchange.alone_ms for exchange in exchanges],
        "y": [exchange.exposed_ms for exchange in exchanges],
        "error_y": bars(intervals, "ms")
        | {"width": 4, "color": faded(COLOURS.get(semantics, GREY), 0.4)},
        "text": [exchange.point.hover for exchange in exchanges],
        "customdata": [exchange.overlap for exchange in exchanges],
        "hovertemplate": _HOVER,
        "name": label(f"{semantics} updates"),
        "showlegend": True,
        "marker": {"color": COLOURS.get(semantics, GREY), "symbol": symbol, "size": 9},
    }


def _description(exchanges: Sequence[_Exchange]) -> str:
    if not exchanges:
        return "No point's exchange was measured on its own."
    sentences = [
        f"{count_of(len(exchanges), 'point')}: time of the exchange on its own across, and the "
        "time that a step waits for it (exposed) up."
    ]
    longest = max(exchanges, key=lambda exchange: exchange.exposed_ms)
    for words, exchange in (
        ("Longest exposed", longest),
        (_first_words(exchanges[0]), exchanges[0]),
    ):
        sentences.append(
            f"{words}: {exchange.point.name}, {format_number(exchange.exposed_ms, digits=3)} ms "
            f"exposed, {format_number(exchange.alone_ms, digits=3)} ms on its own, overlap "
            f"{exchange.overlap}."
        )
    return " ".join(sentences)


def _first_words(exchange: _Exchange) -> str:
    return "Recommended point" if exchange.point.is_recommended else "Highest throughput"


def _table(exchanges: Sequence[_Exchange]) -> dict[str, list[str]]:
    if not exchanges:
        return {}
    return {
        **name_columns([exchange.point for exchange in exchanges]),
        "on its own, ms": [format_number(e.alone_ms, digits=3) for e in exchanges],
        "exposed, ms": [format_number(e.exposed_ms, digits=3) for e in exchanges],
        "overlap": [exchange.overlap for exchange in exchanges],
    }
