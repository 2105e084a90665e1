"""Traces of the frontier plot: lines, marks with error bars, rings, and keys of the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtsweep.report.frontiers import Frontier
from dtsweep.show.numbers import bars
from dtsweep.show.points import PlotPoint
from dtsweep.show.style import (
    COLOURS,
    FAINT,
    FILLS,
    FORMS,
    GREY,
    MORE_FORMS,
    TITLE,
    cut,
    faded,
    in_one_line,
    label,
)

_HOVER = "%{text}<br>%{x:.4g} ms, %{y:.4g} samples/s<br>%{customdata}<extra></extra>"

_KINDS = ("beaten", "undecided", "decided")
"""Looks of the points of a frontier, in the order of their traces: the last lie on top."""


def kind_of(point: PlotPoint) -> str:
    """Look of a point, one of `_KINDS`; empty if it is not compared."""
    if point.row["standing"] == "undecided":
        return "undecided"
    if point.row["on_frontier"]:
        return "decided"
    return "beaten" if isinstance(point.row["standing"], str) else ""


def symbol_of(frontier: Frontier, frontiers: Sequence[Frontier]) -> str:
    """Symbol of a frontier: the kind of update gives its form, the model its fill."""
    models = list(dict.fromkeys(other.model_digest for other in frontiers))
    same = [other for other in frontiers if other.semantics == frontier.semantics]
    kinds = list(dict.fromkeys(other.update_kind for other in same))
    form, _ = FORMS.get(frontier.semantics, FORMS["unknown"])
    forms: tuple[str, ...] = (form, *MORE_FORMS.get(frontier.semantics, ()))
    form = forms[kinds.index(frontier.update_kind) % len(forms)]
    return form + FILLS[models.index(frontier.model_digest) % len(FILLS)]


def traces_of(
    frontier: Frontier, points: Sequence[PlotPoint], *, symbol: str
) -> list[dict[str, Any]]:
    """Traces of a frontier, the one with its entry in the legend last."""
    by_kind = {kind: [point for point in points if kind_of(point) == kind] for kind in _KINDS}
    line = _rising(by_kind["decided"])
    # Decided by another objective than these two.
    aside = [point for point in by_kind["decided"] if point not in line]
    traces = [
        _points(frontier, drawn, symbol=symbol) | look
        for drawn, look in (
            (by_kind["beaten"], {"opacity": FAINT}),
            (by_kind["undecided"], _undecided_look(frontier, by_kind["undecided"], symbol)),
            (aside, _bars(frontier, aside)),
            (line, _bars(frontier, line) | {"mode": "lines+markers"}),
        )
        if drawn
    ]
    for trace in traces:
        trace["showlegend"] = trace is traces[-1]
    return traces


def rings(points: Sequence[PlotPoint]) -> list[dict[str, Any]]:
    """Traces that mark knees and recommended points."""
    marked = {
        "knee": ("circle-open", [p for p in points if p.is_shown and p.row["knee"]]),
        "recommended": ("star-open", [p for p in points if p.is_recommended]),
    }
    return [
        {
            "type": "scatter",
            "ids": [point.key for point in ringed],
            "x": [float(point.row["latency_s"]) * 1e3 for point in ringed],
            "y": [float(point.row["samples_per_s"]) for point in ringed],
            "mode": "markers",
            "marker": {"symbol": symbol, "size": 18, "color": GREY, "line": {"width": 2}},
            "hoverinfo": "skip",
            "name": name,
        }
        for name, (symbol, ringed) in marked.items()
        if ringed
    ]


def legend_keys(points: Sequence[PlotPoint]) -> list[dict[str, Any]]:
    """Entries of the legend for the looks of points, without points of their own."""
    looks: dict[str, dict[str, Any]] = {
        "may be beaten": {"marker": {"symbol": "circle-open", "size": 8, "color": GREY}},
        "beaten": {
            "marker": {"symbol": "circle", "size": 8, "color": GREY},
            "opacity": FAINT,
        },
    }
    kinds = {kind_of(point).replace("undecided", "may be beaten") for point in points}
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [None],
            "y": [None],
            "hoverinfo": "skip",
            "name": name,
            **look,
        }
        for name, look in looks.items()
        if name in kinds
    ]


def _rising(points: Sequence[PlotPoint]) -> list[PlotPoint]:
    """Points that no other one beats by its means: each slower step has a higher throughput."""
    rising: list[PlotPoint] = []
    for point in points:
        if not rising or point.row["samples_per_s"] >= rising[-1].row["samples_per_s"]:
            rising.append(point)
    return rising


def _points(frontier: Frontier, points: Sequence[PlotPoint], *, symbol: str) -> dict[str, Any]:
    """Trace of points."""
    colour = COLOURS.get(frontier.semantics, GREY)
    _, dash = FORMS.get(frontier.semantics, FORMS["unknown"])
    return {
        "type": "scatter",
        "mode": "markers",
        "ids": [point.key for point in points],
        "x": [float(point.row["latency_s"]) * 1e3 for point in points],
        "y": [float(point.row["samples_per_s"]) for point in points],
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "line": {"color": colour, "dash": dash},
        "text": [point.hover for point in points],
        "customdata": [point.launches for point in points],
        "hovertemplate": _HOVER,
        "name": label(cut(_legend_name(frontier), TITLE)),
        "legendgroup": label(frontier.title),
    }


def _bars(
    frontier: Frontier, points: Sequence[PlotPoint], *, opacity: float = 0.6
) -> dict[str, Any]:
    """Error bars of both axes, with caps; thinner than marks and lines, and more transparent."""
    rows = [point.row for point in points]
    look = {"color": faded(COLOURS.get(frontier.semantics, GREY), opacity), "width": 4}
    return {
        "error_x": bars(rows, "latency_s", unit=1e3) | look,
        "error_y": bars(rows, "samples_per_s") | look,
    }


def _undecided_look(frontier: Frontier, points: Sequence[PlotPoint], symbol: str) -> dict[str, Any]:
    look = _bars(frontier, points, opacity=0.25)
    for name in ("error_x", "error_y"):
        look[name] |= {"thickness": 0.75, "width": 2}
    colour = COLOURS.get(frontier.semantics, GREY)
    marker = {"color": colour, "symbol": _hollow(symbol), "size": 8, "line": {"width": 1.5}}
    return look | {"marker": marker}


def _hollow(symbol: str) -> str:
    """Hollow mark of the same form.

    >>> _hollow("circle"), _hollow("circle-dot")
    ('circle-open', 'circle-open-dot')
    """
    form, mark, fill = symbol.removesuffix("-dot"), "-open", symbol.endswith("-dot")
    return f"{form}{mark}-dot" if fill else f"{form}{mark}"


def _legend_name(frontier: Frontier) -> str:
    """Semantics first, then the sync mode if all points share it, model and environment.

    Settings of the mode are left to the text under the mouse, so that the name is short.
    """
    _, *others = frontier.name.split(" · ", 1)
    rest = "".join(others)
    modes = frontier.points["sync"].unique()
    if frontier.labels.nunique() == 1:
        rest = rest.replace(frontier.labels.iloc[0], "").strip(" ·").replace(" ·  · ", " · ")
    mode = str(modes[0]) if len(modes) == 1 else ""
    return in_one_line([frontier.update.replace("_", " "), mode, rest], mark=" · ")
