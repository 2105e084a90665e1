"""Frontiers as a plot of characters, for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import plotext

from dtsweep.report.axes import Axis, axis_for, tick_label
from dtsweep.report.frontiers import Frontier
from dtsweep.report.text import count_of

if TYPE_CHECKING:
    import pandas as pd

MARKERS = (("●", "○"), ("▲", "△"), ("■", "□"), ("◆", "◇"), ("▼", "▽"), ("★", "☆"))
"""Of each frontier, in turn: for points on it, and for those that are beaten."""

_KNEE = "k"
_ROWS = 13
_WIDEST = 100


def sketch(frontiers: Sequence[Frontier], *, width: int) -> str:
    """Plot step time against throughput, with markers of its own for each frontier.

    Args:
        frontiers: those of a report; the first ones, where there are more than markers.
        width: of the terminal, in characters.

    Returns:
        Lines that say what the markers mean, and the plot; empty where fewer than two points are known.
    """
    known = [found for found in frontiers if len(found.drawn)]
    drawn, width = known[: len(MARKERS)], min(width, _WIDEST)
    if sum(len(found.drawn) for found in drawn) < 2:
        return ""
    step_ms = axis_for([value * 1e3 for found in drawn for value in found.drawn["latency_s"]], most_ticks=8)
    rate = axis_for([value for found in drawn for value in found.drawn["samples_per_s"]], most_ticks=5)
    lines = _legend(drawn, left_out=len(known) - len(drawn))
    return "\n".join([*textwrap.wrap("   ".join(lines), width), _plot(drawn, step_ms, rate, width=width)])


def _legend(drawn: Sequence[Frontier], *, left_out: int) -> Iterator[str]:
    """What the axes and each marker mean."""
    yield "samples/s ↑"
    yield "step, ms →"
    semantics = [found.semantics for found in drawn]
    names = semantics if len(set(semantics)) == len(drawn) else [found.name for found in drawn]
    for name, (best, _) in zip(names, MARKERS, strict=False):
        yield f"{best} {name}"
    if any(len(found.dominated) for found in drawn):
        yield "hollow: beaten"
    if any(found.shown["knee"].any() for found in drawn):
        yield f"{_KNEE}: knee"
    if left_out:
        yield f"{count_of(left_out, 'more frontier')} not drawn"


def _plot(drawn: Sequence[Frontier], step_ms: Axis, rate: Axis, *, width: int) -> str:
    """Draw the axes and, in this order, what may be covered: beaten points, knees, points on frontiers."""
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, _ROWS).axes(False, side=1)
    for name, axis in (("x", step_ms), ("y", rate)):
        # Shares of an axis and not values: plotext writes logarithmic ticks as powers.
        figure.ruler(name).lim(0, 1).ticks([*map(axis.share, axis.ticks)], [*map(tick_label, axis.ticks)])

    def places(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
        return [step_ms.share(s * 1e3) for s in rows["latency_s"]], [rate.share(r) for r in rows["samples_per_s"]]

    for found, (_, beaten) in zip(drawn, MARKERS, strict=False):
        figure.draw(figure.signal(*places(found.dominated), marker=beaten))
    for found in drawn:
        for across, up in zip(*places(found.shown[found.shown["knee"]]), strict=True):
            figure.draw(figure.text(across + 2 / width, up, _KNEE))
    for found, (best, _) in zip(drawn, MARKERS, strict=False):
        figure.draw(figure.signal(*places(found.shown), marker=best))
    return "\n".join(line.rstrip() for line in figure.build().string(True).splitlines())
