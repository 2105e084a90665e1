"""Plots of the energy and of the cost of samples, where they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtsweep.plots.bar_rows import about_the_rest, bar_layout, bar_rows, bar_trace
from dtsweep.plots.numbers import bars, number
from dtsweep.plots.plot import Plot
from dtsweep.plots.points import PlotPoint, means_by_point, name_columns, points_of
from dtsweep.plots.style import title
from dtsweep.report.content import Content
from dtsweep.text import count_of, format_ends, format_number

_ENERGIES = {
    "energy_j_per_sample": ("GPUs", "#0072B2", ""),
    "cpu_energy_j_per_sample": ("CPUs of the hosts", "#A87200", "/"),
}
"""Columns of energy with the words, colour and pattern of their bars."""

_COST = "usd_per_million_samples"


def energy_plot(content: Content) -> Plot:
    """Plot the energy of a sample in J, per point, the least first; empty where it is unknown.

    Bars of GPUs and of CPUs stand next to each other: mean over the launches of a point.
    """
    means = means_by_point(content.study.trials, [*_ENERGIES])
    columns = [name for name in _ENERGIES if any(name in row for row in means.values())]
    points = [point for point in points_of(content) if point.key in means]
    points.sort(key=lambda point: sum(means[point.key].values()))
    drawn = bar_rows(points)
    traces = [
        bar_trace(
            drawn,
            [means[point.key].get(column) for point in drawn],
            name=_ENERGIES[column][0],
            colour=_ENERGIES[column][1],
            pattern=_ENERGIES[column][2],
            hovertemplate="%{hovertext}<br>%{fullData.name}: %{x:.4g} J/sample<extra></extra>",
        )
        for column in columns
        if drawn
    ]
    return Plot(
        name="energy",
        title="Energy of a sample",
        subtitle=about_the_rest(points),
        description=_energy_description(points, means),
        traces=traces,
        layout=bar_layout(
            drawn, x={"title": title("energy, J/sample"), "rangemode": "tozero"}, barmode="group"
        ),
        table=_energy_table(points, means, columns),
    )


def _energy_description(
    points: Sequence[PlotPoint], means: Mapping[str, Mapping[str, float]]
) -> str:
    if not points:
        return "No point's energy is known."
    least, most = (
        f"{point.name}, {format_number(sum(means[point.key].values()), digits=3)} J/sample"
        for point in (points[0], points[-1])
    )
    return f"Energy of a sample, of {count_of(len(points), 'point')}. Least: {least}. Most: {most}."


def _energy_table(
    points: Sequence[PlotPoint],
    means: Mapping[str, Mapping[str, float]],
    columns: Sequence[str],
) -> dict[str, list[str]]:
    if not points:
        return {}
    table = name_columns(points)
    for column in columns:
        values = [means[point.key].get(column, float("nan")) for point in points]
        table[f"{_ENERGIES[column][0]} J/sample"] = [format_number(value) for value in values]
    return table


def cost_plot(content: Content) -> Plot:
    """Plot the price of a million samples in USD, per point, the least first.

    Bars have 95 % intervals. Empty where no node has a price.
    """
    points = [point for point in points_of(content) if number(point.row[_COST]) is not None]
    points.sort(key=lambda point: float(point.row[_COST]))
    drawn = bar_rows(points)
    traces: list[dict[str, Any]] = []
    if drawn:
        traces = [
            bar_trace(
                drawn,
                [float(point.row[_COST]) for point in drawn],
                name="cost",
                colour="#0072B2",
                error_x=bars([point.row for point in drawn], _COST),
                hovertemplate="%{hovertext}<br>%{x:.4g} USD per million samples<extra></extra>",
            )
        ]
    return Plot(
        name="cost",
        title="Cost of a million samples",
        subtitle=about_the_rest(points),
        description=_cost_description(points),
        traces=traces,
        layout=bar_layout(drawn, x={"title": title("cost, USD"), "rangemode": "tozero"}),
        table=_cost_table(points),
    )


def _cost_description(points: Sequence[PlotPoint]) -> str:
    if not points:
        return "No point's cost is known."
    least, most = (
        f"{point.name}, {format_number(float(point.row[_COST]), digits=3)} USD"
        for point in (points[0], points[-1])
    )
    return (
        f"Cost of a million samples, of {count_of(len(points), 'point')}. "
        f"Least: {least}. Most: {most}."
    )


def _cost_table(points: Sequence[PlotPoint]) -> dict[str, list[str]]:
    if not points:
        return {}
    ends = [
        [_or_nan(number(point.row[f"{_COST}{end}"])) for end in ("", "_low", "_high")]
        for point in points
    ]
    return {
        **name_columns(points),
        "USD per million samples": [format_ends(*interval) for interval in ends],
    }


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
