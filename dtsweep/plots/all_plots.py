"""All plots of a report, in the order of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtsweep.plots.frontier_plot import frontier_plot
from dtsweep.plots.memory_plot import memory_plot
from dtsweep.plots.plot import Plot
from dtsweep.plots.scaling_plot import scaling_plot
from dtsweep.plots.shares_plot import shares_plot
from dtsweep.report.content import Content

if TYPE_CHECKING:
    import pandas as pd


def plots_of(content: Content, *, ranks: pd.DataFrame | None = None) -> list[Plot]:
    """Plots of a report that have something to show; those of step times are of one trial each.

    Args:
        content: of the report.
        ranks: rows of `ranks`, which have the devices' free memory; None if they are not at hand.
    """
    plots = [
        frontier_plot(content),
        scaling_plot(content),
        scaling_plot(content, per="node"),
        shares_plot(content),
        memory_plot(content, ranks=ranks),
    ]
    return [plot for plot in plots if not plot.is_empty]
