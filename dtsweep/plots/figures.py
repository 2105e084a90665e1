"""Plotly figures for notebooks and pages: the frontier, speed-up by workers, parts of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.report.advice import bounds_of
from dtsweep.report.content import Content, Scaling, content_of
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import passes_label, trial_label
from dtsweep.report.plot_axes import axis_for, tick_label
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["frontier", "scaling", "shares"]


COLOURS = {
    "exact": "#0072B2",
    "lossy": "#CC79A7",
    "stale": "#D55E00",
    "local": "#009E73",
    "not_exchanged": "#E69F00",
    "unknown": "#999999",
}
"""Colour of each semantics, from the colour-blind-safe palette of Okabe and Ito."""

_FORMS = (
    ("circle", "solid"),
    ("square", "dash"),
    ("diamond", "dot"),
    ("cross", "dashdot"),
    ("x", "longdash"),
)
"""Symbol and line of each model, in turn."""

_PARTS = {
    "input_share": ("loading batches", "#E69F00"),
    "exchange_share": ("exchange that nothing hides", "#D55E00"),
    "waiting_share": ("waiting for the slowest worker", "#CC79A7"),
    "work_share": ("device work", "#0072B2"),
}
"""Parts of a step, which add up to it, with their colours."""

_FAINT = 0.35

_SIDE_BY_SIDE = 1.02
"""Factor between the places of neighbouring groups along an axis of sizes."""

_LADDERS = 8
"""Largest number of scaling groups in a figure, those of the highest throughput.

More lines can't be distinguished.
"""


def frontier(data: pd.DataFrame | Content) -> Figure:
    """Draw step time against throughput, a line for each frontier.

    Error bars are 95 % intervals, within one launch where a point has only one (hover says which);
    what reaches beyond all points is cut off. Points that are beaten are faint, without bars. Of
    modes that change the update, points with one worker are left out where there are others.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        Step time in ms across, logarithmic where it spans more than ten times, and samples/s up;
        knees and recommended points have a ring of their own.

    Raises:
        SweepError: Plotly is not installed.
    """
    content = _content(data)
    figure = _figure()
    models = list(dict.fromkeys(group.model_digest for group in content.frontiers))
    for group in content.frontiers:
        form = _FORMS[models.index(group.model_digest) % len(_FORMS)]
        _add_points(figure, group, group.dominated, content.varying, form=form)
        _add_points(figure, group, group.shown, content.varying, form=form)
    _add_rings(figure, content)
    steps_ms = [value * 1e3 for group in content.frontiers for value in group.drawn["latency_s"]]
    if steps_ms:
        axis = axis_for(steps_ms)
        ends = [math.log10(end) if axis.is_logarithmic else end for end in (axis.low, axis.high)]
        figure.update_xaxes(type="log" if axis.is_logarithmic else "linear", range=ends)
        figure.update_xaxes(
            tickvals=axis.ticks, ticktext=[tick_label(value) for value in axis.ticks]
        )
        rates = [value for group in content.frontiers for value in group.drawn["samples_per_s"]]
        figure.update_yaxes(range=[0, axis_for(rates, from_zero=True).high])
    figure.update_xaxes(title="step time, ms")
    figure.update_yaxes(title="samples/s", rangemode="tozero")
    return _titled(figure, "Step time against throughput", _about_bars(content))


def scaling(data: pd.DataFrame | Content) -> Figure:
    """Draw the speed-up of larger worlds over the smallest one of their group, weak and strong.

    Of many groups, the eight of the highest throughput; the line below the title says how many are
    not drawn.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        Workers as a multiple of the fewest across, speed-up with its 95 % interval up, where
        launches give one; the dashed line is the ideal.

    Raises:
        SweepError: Plotly is not installed.
    """
    content = _content(data)
    figure = _figure()
    ladders = [
        (part, rows) for part in content.scaling if part.per == "worker" for rows in part.groups
    ]
    ladders.sort(key=lambda ladder: float(ladder[1]["samples_per_s"].max()), reverse=True)
    sizes = {1.0}
    drawn = ladders[:_LADDERS]
    for place, (part, rows) in enumerate(drawn):
        multiple = (rows["workers"] / rows["base"]).to_list()
        # Side by side, the bars of several groups at one size can be told apart.
        shift = _SIDE_BY_SIDE ** (place - (len(drawn) - 1) / 2)
        figure.add_scatter(
            x=[size * shift for size in multiple],
            y=rows["speed_up"].to_list(),
            error_y=_bars(rows, "speed_up"),
            mode="lines+markers",
            text=rows["caution"].to_list(),
            name=_ladder_name(part, rows),
        )
        sizes.update(multiple)
    ends = [1, max(sizes)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"dash": "dash", "color": "grey"}, name="ideal"
    )
    figure.update_xaxes(title="workers, as a multiple of the fewest", tickvals=sorted(sizes))
    figure.update_yaxes(title="speed-up", rangemode="tozero")
    hidden = len(ladders) - _LADDERS
    below = "weak: same micro_batch × accumulation; strong: same global_batch"
    below += f"; {count_of(hidden, 'slower group')} not drawn" if hidden > 0 else ""
    return _titled(figure, "Speed-up by workers", below if ladders else "")


def shares(data: pd.DataFrame | Content) -> Figure:
    """Draw the parts of a step for each point on a frontier.

    The shares are from `dtsweep.analysis.bottleneck`.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        A bar per point, of shares of its mean step in percent; a part that was not measured is
        missing from it, and what limits the point is said under the mouse.

    Raises:
        SweepError: Plotly is not installed.
    """
    content = _content(data)
    figure = _figure()
    shown = [(group, group.shown) for group in content.frontiers if len(group.shown)]
    names = [
        f"{group.semantics}: {_hover_text(row, content.varying)}"
        for group, rows in shown
        for _, row in rows.iterrows()
    ]
    bounds = [row for _, rows in shown for _, row in bounds_of(rows, content.bounds).iterrows()]
    for column, (words, colour) in _PARTS.items():
        figure.add_bar(
            x=[row[column] * 100 for row in bounds],
            y=names,
            orientation="h",
            name=words,
            marker={"color": colour},
            hovertext=[row["bound_reason"] for row in bounds],
        )
    figure.update_xaxes(title="share of the mean step, %")
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(barmode="stack")
    return _titled(figure, "What a step is made of", "")


def _content(data: pd.DataFrame | Content) -> Content:
    if isinstance(data, Content):
        return data
    return content_of(data)


def _figure() -> Figure:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise SweepError(
            "plots need Plotly, which is not installed; pip install 'dtsweep[plots]'"
        ) from None
    return go.Figure()


def _titled(figure: Figure, title: str, below: str) -> Figure:
    figure.update_layout(
        template="simple_white",
        title={"text": title, "subtitle": {"text": below}},
        # At the lower edge of the figure, which keeps it clear of the axis however many lines it
        # has.
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        hovermode="closest",
    )
    return figure


def _add_points(
    figure: Figure,
    group: Frontier,
    rows: pd.DataFrame,
    varying: Sequence[str],
    *,
    form: tuple[str, str],
) -> None:
    """Add points of a frontier to a figure.

    Points on the frontier are joined by a line. Dominated points are faint.
    """
    symbol, dash = form
    is_on_frontier = bool(rows["on_frontier"].any())
    style: dict[str, Any] = {"mode": "markers", "opacity": _FAINT}
    if is_on_frontier:
        style = {
            "mode": "lines+markers",
            "opacity": 1.0,
            "error_x": _bars(rows, "latency_s", unit=1e3),
            "error_y": _bars(rows, "samples_per_s"),
        }
    colour = COLOURS.get(group.semantics, "grey")
    figure.add_scatter(
        x=(rows["latency_s"] * 1e3).to_list(),
        y=rows["samples_per_s"].to_list(),
        marker={"color": colour, "symbol": symbol, "size": 8},
        line={"color": colour, "dash": dash},
        text=[_hover_text(point, varying) for _, point in rows.iterrows()],
        customdata=[_interval_words(point) for _, point in rows.iterrows()],
        hovertemplate="%{text}<br>%{x:.4g} ms, %{y:.4g} samples/s<br>%{customdata}<extra></extra>",
        name=group.name,
        legendgroup=group.name,
        showlegend=is_on_frontier,
        **style,
    )


def _add_rings(figure: Figure, content: Content) -> None:
    """Mark knees and recommended points."""
    recommended = [_key(choice.point) for choice in content.recommendations]
    drawn = [row for group in content.frontiers for _, row in group.drawn.iterrows()]
    marked = {
        "knee": ("circle-open", [row for row in drawn if row["knee"]]),
        "recommended": ("star-open", [row for row in drawn if _key(row) in recommended]),
    }
    for name, (symbol, rows) in marked.items():
        if rows:
            figure.add_scatter(
                x=[row["latency_s"] * 1e3 for row in rows],
                y=[row["samples_per_s"] for row in rows],
                mode="markers",
                marker={"symbol": symbol, "size": 18, "color": "grey", "line": {"width": 2}},
                hoverinfo="skip",
                name=name,
            )


def _key(point: pd.Series[Any]) -> tuple[Any, ...]:
    return tuple(point[name] for name in POINT)


def _bars(rows: pd.DataFrame, name: str, *, unit: float = 1.0) -> dict[str, Any]:
    """Error bars from an interval; none where it is null."""
    return {
        "type": "data",
        "symmetric": False,
        "array": ((rows[f"{name}_high"] - rows[name]) * unit).to_list(),
        "arrayminus": ((rows[name] - rows[f"{name}_low"]) * unit).to_list(),
        "thickness": 1,
        "width": 2,
    }


def _hover_text(point: pd.Series[Any], varying: Sequence[str]) -> str:
    return trial_label(point, varying) + (f" ({point['caution']})" if point["caution"] else "")


def _interval_words(point: pd.Series[Any]) -> str:
    """Say how many launches a point has, and the kind of its interval."""
    import pandas as pd

    kinds = {
        "launch": "interval within this launch",
        "pooled": "interval with the spread of other points' launches",
    }
    kind = kinds.get(
        point["interval"],
        "interval over launches" if pd.notna(point["interval"]) else "no interval",
    )
    launches = int(point["launches"])
    return f"{launches} launch{'es' if launches > 1 else ''}, {kind}"


def _about_bars(content: Content) -> str:
    """Say that some error bars are within one launch, where there are such bars."""
    points = [row for group in content.frontiers for _, row in group.shown.iterrows()]
    within = sum(row["interval"] == "launch" for row in points)
    if not within:
        return ""
    return f"bars of {count_of(within, 'point')} are within one launch: another may lie outside"


def _ladder_name(part: Scaling, rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    if first["kind"] == "weak":
        batch = passes_label(first)
    else:
        batch = f"{first['global_batch']}"
    return " · ".join([str(first["kind"]), part.labels.loc[rows.index[0]], batch])
