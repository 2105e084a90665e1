"""All plots of a report, in the order of a page."""

from __future__ import annotations

from dtsweep.plots.frontier_plot import frontier_plot
from dtsweep.plots.plot import Plot
from dtsweep.plots.scaling_plot import scaling_plot
from dtsweep.plots.shares_plot import shares_plot
from dtsweep.report.content import Content


def plots_of(content: Content) -> list[Plot]:
    """Plots of a report that have something to show.

    Args:
        content: of the report.
    """
    plots = [
        frontier_plot(content),
        scaling_plot(content),
        scaling_plot(content, per="node"),
        shares_plot(content),
    ]
    return [plot for plot in plots if not plot.is_empty]
