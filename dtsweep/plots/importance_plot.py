"""Plot of the importance of the swept axes for the step time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.plots.plot import Plot
from dtsweep.plots.style import GREY, SERIES, label, layout, title
from dtsweep.report.content import Content
from dtsweep.report.importance_words import (
    LEAST_SHOWN,
    Importance,
    groups_of,
    importance_of_axes,
    sentences,
)
from dtsweep.text import in_percent

if TYPE_CHECKING:
    import pandas as pd

_ROW, _FRAME = 24, 150
"""Pixels of a row, and of all that is around the rows."""


def importance_plot(content: Content, *, is_asked: bool = False) -> Plot:
    """Plot the share of each axis in the variation of the step time.

    Bars of the models and environments stand next to each other.

    Args:
        content: of the report.
        is_asked: compute it if the report has no such section; else the plot is empty then.
    """
    section = next((one for one in content.sections if isinstance(one, Importance)), None)
    if section is None and is_asked:
        section = importance_of_axes(content.study)
    groups = [] if section is None else groups_of(section.rows)
    names = _names(groups)
    description = "No share is known."
    if section is not None and groups:
        description = " ".join(sentences(section.rows))
    ticks = {"tickvals": list(range(len(names))), "ticktext": [label(name) for name in names]}
    y = {"title": title("axes"), **ticks, "range": [len(names) - 0.5, -0.5], "zeroline": False}
    x = {"title": title("share of the variance, %"), "rangemode": "tozero"}
    return Plot(
        name="importance",
        title="What matters for the step time",
        description=description,
        traces=[_trace(group, names, number) for number, group in enumerate(groups)],
        layout=layout(x=x, y=y, bargap=0.25, barmode="group")
        | {"height": _FRAME + _ROW * len(names) * max(1, len(groups))},
        table=_table(groups, names),
    )


def _names(groups: Sequence[pd.DataFrame]) -> list[str]:
    """Axes and pairs with a share that can be seen, the most important first."""
    largest: dict[str, float] = {}
    for group in groups:
        for name, share in zip(group["axes"], group["share"], strict=True):
            largest[name] = max(share, largest.get(name, 0.0))
    return [
        name
        for name, share in sorted(largest.items(), key=lambda item: -item[1])
        if share >= LEAST_SHOWN
    ]


def _trace(group: pd.DataFrame, names: list[str], number: int) -> dict[str, Any]:
    """Bars of one model and environment; axes that were varied together are grey."""
    rows = group.set_index("axes").reindex(names)
    colour = SERIES[number % len(SERIES)].colour
    colours = [GREY if flag is False else colour for flag in rows["is_identifiable"]]
    return {
        "type": "bar",
        "orientation": "h",
        "x": [round(100 * share, 2) for share in rows["share"].fillna(0.0)],
        "y": list(range(len(names))),
        "name": label(f"model {group['model_digest'].iloc[0]}"),
        "hovertext": [label(name) for name in names],
        "hovertemplate": "%{hovertext}: %{x:.3g} %<extra></extra>",
        "marker": {"color": colours},
        "showlegend": False,
    }


def _table(groups: Sequence[pd.DataFrame], names: list[str]) -> dict[str, list[str]]:
    if not groups:
        return {}
    table = {"axes": list(names)}
    for group in groups:
        shares = group.set_index("axes")["share"].reindex(names).fillna(0.0)
        header = "share"
        if len(groups) > 1:
            header = f"share, {group['model_digest'].iloc[0]} in {group['env_id'].iloc[0]}"
        table[header] = [in_percent(share, digits=1) for share in shares]
    return table
