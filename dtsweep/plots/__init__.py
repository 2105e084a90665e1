"""Plots of results for notebooks and pages: `dtsweep.plots`.

Readers; imports Plotly in functions alone. In reading order:

    plot            what a plot is: traces, words, table
    style           colours, symbols, patterns; text of others for Plotly
    numbers         numbers of results as JSON values, error bars
    points          points with the texts and keys that all plots give them
    bar_rows        horizontal bars, one row per point
    frontier_traces  lines and marks of the frontier plot
    frontier_plot   step time against throughput
    scaling_plot    speed-up by workers or nodes
    shares_plot     parts of a step
    step_times_plot  step times of one trial
    memory_plot     peak memory
    figures         plots of a page, and plots as Plotly figures
"""

from __future__ import annotations

from dtsweep.plots.figures import frontier, memory, scaling, shares, step_times
from dtsweep.plots.figures import plots_of as plots_of

__all__ = ["frontier", "memory", "scaling", "shares", "step_times"]


def __dir__() -> list[str]:
    """Offer the figures alone, as in a notebook's completion."""
    return sorted(__all__)
