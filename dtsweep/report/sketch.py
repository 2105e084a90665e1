"""Frontiers as a plot of characters, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import plotext

from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import point_key
from dtsweep.report.plot_axes import PlotAxis, axis_for, tick_label
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

MARKERS = (("●", "○"), ("▲", "△"), ("■", "□"), ("◆", "◇"), ("▼", "▽"), ("★", "☆"))
"""Of each frontier, in turn: for points on it, and for those that are beaten."""

_ROWS = 11
_NO_BREAK = "\N{NO-BREAK SPACE}"
"""Keeps a marker and its meaning in one line."""
_INDENT = "    "
"""Begins further lines of the legend, so that a part of a stored text is no line of its own."""
_WIDEST = 100


def sketch(
    frontiers: Sequence[Frontier], *, recommended: Sequence[pd.Series[Any]] = (), width: int
) -> str:
    """Plot step time against throughput, with markers of its own for each frontier.

    Args:
        frontiers: those of a report; the first ones, where there are more than markers.
        recommended: rows of points.
        width: of the terminal, in characters.

    Returns:
        Lines that say what the markers mean, and the plot; empty where fewer than two points are
        known.
    """
    with_points = [frontier for frontier in frontiers if len(frontier.drawn)]
    drawn, width = with_points[: len(MARKERS)], min(width, _WIDEST)
    if sum(len(frontier.drawn) for frontier in drawn) < 2:
        return ""
    steps = [value * 1e3 for frontier in drawn for value in frontier.drawn["latency_s"]]
    rates = [value for frontier in drawn for value in frontier.drawn["samples_per_s"]]
    step_ms = axis_for(steps, most_ticks=8)
    rate = axis_for(rates, most_ticks=5)
    marks = _marks(drawn, recommended)
    words = _legend(drawn, {mark for *_, mark in marks}, left_out=len(with_points) - len(drawn))
    legend = textwrap.wrap(
        "  ".join(word.replace(" ", _NO_BREAK) for word in words), width, subsequent_indent=_INDENT
    )
    plot = _plot(drawn, marks, (step_ms, rate), width=width)
    return "\n".join([*(line.replace(_NO_BREAK, " ") for line in legend), plot])


def _marks(
    drawn: Sequence[Frontier], recommended: Sequence[pd.Series[Any]]
) -> list[tuple[float, float, str]]:
    """Step time, throughput and letter of each point that is marked."""
    names = [point_key(point) for point in recommended]
    marks = []
    for frontier in drawn:
        for _, row in frontier.drawn.iterrows():
            if point_key(row) in names:
                letter = "R"
            elif row["knee"] and row["on_frontier"]:
                letter = "k"
            else:
                continue
            marks.append((row["latency_s"] * 1e3, row["samples_per_s"], letter))
    return marks


def _legend(drawn: Sequence[Frontier], letters: set[str], *, left_out: int) -> list[str]:
    """Name the quantity of the vertical axis, and the meaning of each marker."""
    names = [frontier.update for frontier in drawn]
    if len(set(names)) < len(drawn):
        names = [frontier.name for frontier in drawn]
    words = ["samples/s"]
    words += [f"{best} {name}" for name, (best, _) in zip(names, MARKERS, strict=False)]
    for frontier, (_, hollow) in zip(drawn, MARKERS, strict=False):
        if len(frontier.dominated):
            words.append(f"{hollow} hollow: beaten")
            break
    if "k" in letters:
        words.append("k knee")
    if "R" in letters:
        words.append("R recommended")
    if left_out:
        words.append(f"{count_of(left_out, 'more frontier')} not drawn")
    return words


def _plot(
    drawn: Sequence[Frontier],
    marks: Sequence[tuple[float, float, str]],
    axes: tuple[PlotAxis, PlotAxis],
    *,
    width: int,
) -> str:
    """Draw the axes, then letters, dominated points and points on frontiers.

    Later marks cover earlier ones, so exact points are the last of their kind.
    """
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, _ROWS).axes(active=False, side=1)
    step_ms, rate = axes
    *labels, last = map(tick_label, step_ms.ticks)
    for name, axis, texts in (
        ("x", step_ms, [*labels, f"{last} ms/step"]),
        ("y", rate, [*map(tick_label, rate.ticks)]),
    ):
        # Shares of an axis and not values: plotext writes logarithmic ticks as powers.
        figure.ruler(name).lim(0, 1).ticks([*map(axis.share, axis.ticks)], texts)
    for ms, per_s, letter in marks:
        figure.draw(figure.text(step_ms.share(ms) + 2 / width, rate.share(per_s), letter))
    for place, field in ((1, "dominated"), (0, "shown")):
        for frontier, markers in reversed([*zip(drawn, MARKERS, strict=False)]):
            rows: pd.DataFrame = getattr(frontier, field)
            across = [step_ms.share(value * 1e3) for value in rows["latency_s"]]
            up = [rate.share(value) for value in rows["samples_per_s"]]
            figure.draw(figure.signal(across, up, marker=markers[place]))
    return "\n".join(line.rstrip() for line in figure.build().string(colorless=True).splitlines())
