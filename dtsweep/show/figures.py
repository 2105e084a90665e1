"""Plots as Plotly figures, for notebooks: `dtsweep.plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.escape import printable_values
from dtsweep.report.content import Content, content_of
from dtsweep.show.frontier_plot import frontier_plot
from dtsweep.show.plot import Plot
from dtsweep.show.scaling_plot import scaling_plot
from dtsweep.show.shares_plot import shares_plot
from dtsweep.show.style import label

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["frontier", "scaling", "shares"]


def __dir__() -> list[str]:
    """Offer the figures alone, as in a notebook's completion."""
    return sorted(__all__)


def figure_of(plot: Plot) -> Figure:
    """Make the Plotly figure of a plot.

    Raises:
        SweepError: Plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise SweepError(
            "plots need Plotly, which is not installed; pip install 'dtsweep[plots]'"
        ) from None
    # A notebook breaks no lines of a title.
    words = label(plot.title).replace(": ", ":<br>", 1)
    title = {"text": words, "subtitle": {"text": label(plot.subtitle)}}
    layout = {**plot.layout, "template": "simple_white", "title": title}
    return go.Figure(data=printable_values(plot.traces), layout=layout)


def _figure_function(name: str, plot_of: Callable[..., Plot]) -> Callable[..., Figure]:
    """Function that draws a plot as a figure.

    It takes one row per trial, as `dtsweep.load` gives it, or the content of a report on them, and
    the options of the plot; its help is the plot's.
    """

    def draw(data: pd.DataFrame | Content, **options: Any) -> Figure:
        return figure_of(plot_of(_content(data), **options))

    draw.__name__ = draw.__qualname__ = name
    draw.__doc__ = plot_of.__doc__
    return draw


frontier = _figure_function("frontier", frontier_plot)
scaling = _figure_function("scaling", scaling_plot)
shares = _figure_function("shares", shares_plot)


def _content(data: pd.DataFrame | Content) -> Content:
    if isinstance(data, Content):
        return data
    return content_of(Study(data))


def plots_of(content: Content) -> list[Plot]:
    """Plots of a report that have something to show."""
    plots = [
        frontier_plot(content),
        scaling_plot(content),
        scaling_plot(content, per="node"),
        shares_plot(content),
    ]
    return [plot for plot in plots if not plot.is_empty]
