"""Parallel coordinates: settings and main results of all points, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dtsweep.analysis.setting_values import axis_name
from dtsweep.plots.numbers import number
from dtsweep.plots.plot import Plot
from dtsweep.plots.points import PlotPoint, best_sentence, name_columns, points_of
from dtsweep.plots.style import SCALE, cut, joined, label
from dtsweep.report.content import Content
from dtsweep.report.plot_axes import axis_for, tick_label
from dtsweep.text import count_of, format_number

_NOT_SET = "not set"
"""Label of a setting that a point does not have."""

_VALUE = 20
"""Most characters of a setting's value."""

_MOST_TICKS = 25
"""Most values of a setting with a label of their own."""


_FEW = 1.1
"""Largest over smallest result below which an axis begins at 0."""


class _Result(NamedTuple):
    """A measured column, in the unit of its axis."""

    column: str
    words: str
    factor: float


_RESULTS = (
    _Result("latency_s", "step time, ms", 1e3),
    _Result("samples_per_s", "samples/s", 1.0),
    _Result("memory_peak_bytes", "memory, MiB", 2.0**-20),
    _Result("energy_j_per_sample", "energy, J/sample", 1.0),
    _Result("usd_per_million_samples", "USD per million samples", 1.0),
)


def settings_plot(content: Content) -> Plot:
    """Plot one line per point over the settings that vary and the main results.

    Lines are coloured by throughput. A result that is not known of all points is left out, as the
    lines could not cross it, and so is a setting that follows from the sync mode. `meta["ids"]` has
    the keys of the points, in the order of the lines.
    """
    points = [point for point in points_of(content) if number(point.row["samples_per_s"])]
    varying = _independent(points, content.varying)
    known = [result for result in _RESULTS if _is_known(points, result)]
    some = [
        result.words
        for result in _RESULTS
        if result not in known
        and any(number(point.row[result.column]) is not None for point in points)
    ]
    traces = []
    # One point has nothing to compare it with.
    if len(points) > 1:
        traces = [_lines(points, varying, known)]
    unknown = f"not known of all points: {', '.join(some)}" if some else ""
    return Plot(
        name="settings",
        title="Settings and results",
        subtitle=joined(
            ["drag along an axis to select lines, click it to select all", unknown]
            if traces
            else []
        ),
        description=_description(points, varying, known),
        traces=traces,
        layout={"margin": {"l": 130, "r": 60, "t": 70, "b": 30}, "height": 460},
        table=_table(points, known),
    )


def _independent(points: Sequence[PlotPoint], varying: Sequence[str]) -> list[str]:
    """Settings that have several values in points of one sync mode, and the mode itself."""
    values: dict[tuple[str, str], set[str]] = {}
    for point in points:
        for name in varying:
            key = (name, str(point.row["sync"]))
            values.setdefault(key, set()).add(_text(point.row[name]))
    several = {name for (name, _), texts in values.items() if len(texts) > 1}
    return [name for name in varying if name == "sync" or name in several]


def _is_known(points: Sequence[PlotPoint], result: _Result) -> bool:
    return all(number(point.row[result.column]) is not None for point in points)


def _lines(
    points: Sequence[PlotPoint], varying: Sequence[str], known: Sequence[_Result]
) -> dict[str, Any]:
    rates = [float(point.row["samples_per_s"]) for point in points]
    return {
        "type": "parcoords",
        "dimensions": [
            *(_setting(points, name) for name in varying),
            *(_result(points, result) for result in known),
        ],
        "line": {
            "color": rates,
            "colorscale": [list(stop) for stop in SCALE],
            "showscale": True,
            "colorbar": {"title": {"text": "samples/s"}},
        },
        "labelangle": -20,
        "labelside": "top",
        "meta": {"ids": [point.key for point in points]},
    }


def _setting(points: Sequence[PlotPoint], name: str) -> dict[str, Any]:
    """Axis of a setting: its values in order, at equal distances."""
    texts = [_text(point.row[name]) for point in points]
    order = _in_order(texts)
    places = {text: place for place, text in enumerate(order)}
    dimension: dict[str, Any] = {
        "label": label(cut(axis_name(name), _VALUE)),
        "values": [places[text] for text in texts],
        "range": [-0.1, max(len(order) - 1, 1) + 0.1],
        "tickvals": list(range(len(order))),
        "ticktext": [cut(text, _VALUE) for text in order],
    }
    if len(order) > _MOST_TICKS:
        every = -(-len(order) // _MOST_TICKS)
        for key in ("tickvals", "ticktext"):
            dimension[key] = dimension[key][::every]
    return dimension


def _text(value: Any) -> str:
    import pandas as pd

    return _NOT_SET if pd.isna(value) else str(value)


def _in_order(texts: Sequence[str]) -> list[str]:
    """Different values: numbers by size, then words, then those that are not set."""

    def rank(text: str) -> tuple[bool, bool, float, str]:
        value = number(text)
        return (text == _NOT_SET, value is None, value or 0.0, text)

    return sorted(set(texts), key=rank)


def _result(points: Sequence[PlotPoint], result: _Result) -> dict[str, Any]:
    values = [float(point.row[result.column]) * result.factor for point in points]
    return {"label": result.words, "values": values, **_scale(values)}


def _scale(values: Sequence[float]) -> dict[str, Any]:
    """Range of an axis, and round numbers at it; differences of a few percent look small."""
    if min(values) <= 0:
        return {"range": _range(values)}
    axis = axis_for(values)
    if axis.is_logarithmic or max(values) < min(values) * _FEW:
        axis = axis_for(values, from_zero=True)
    ticks = list(axis.ticks)
    if len(ticks) < 2:
        return {"range": _range(values)}
    # Plotly draws an axis from its first tick to its last one.
    gap = ticks[1] - ticks[0]
    if min(values) < ticks[0]:
        ticks.insert(0, ticks[0] - gap)
    if max(values) > ticks[-1]:
        ticks.append(ticks[-1] + gap)
    return {
        "range": [ticks[0], ticks[-1]],
        "tickvals": ticks,
        "ticktext": [tick_label(float(f"{value:.6g}")) for value in ticks],
    }


def _range(values: Sequence[float]) -> list[float]:
    """Ends of an axis; equal ones would give it no length."""
    low, high = min(values), max(values)
    if low == high:
        return [low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)]
    return [low, high]


def _description(
    points: Sequence[PlotPoint], varying: Sequence[str], known: Sequence[_Result]
) -> str:
    if len(points) < 2:
        return "Fewer than two points have a throughput, so there is nothing to compare."
    settings = ", ".join(axis_name(name) for name in varying) or "no setting"
    results = ", ".join(result.words for result in known)
    return (
        f"One line for each of {count_of(len(points), 'point')} over the settings that vary "
        f"({settings}) and {results}. {best_sentence(points)}"
    )


def _table(points: Sequence[PlotPoint], known: Sequence[_Result]) -> dict[str, list[str]]:
    if len(points) < 2:
        return {}
    columns = name_columns(points)
    for result in known:
        columns[result.words] = [
            format_number(float(point.row[result.column]) * result.factor) for point in points
        ]
    return columns
