"""Plots as Plotly figures, for notebooks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.escape import printable_values
from dtsweep.plots.energy_plot import cost_plot, energy_plot
from dtsweep.plots.exchange_plot import exchange_plot
from dtsweep.plots.frontier_plot import frontier_plot
from dtsweep.plots.importance_plot import importance_plot
from dtsweep.plots.memory_plot import memory_plot
from dtsweep.plots.plot import Plot
from dtsweep.plots.scaling_plot import scaling_plot
from dtsweep.plots.settings_plot import settings_plot
from dtsweep.plots.shares_plot import shares_plot
from dtsweep.plots.step_series import series_in
from dtsweep.plots.step_times_plot import step_times_plot
from dtsweep.plots.style import label
from dtsweep.privacy import redactor_of_trials
from dtsweep.report.content import Content
from dtsweep.report.redacted import redacted, redacted_content_of
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


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
    title = {"text": label(plot.title), "subtitle": {"text": label(plot.subtitle)}}
    layout = {**plot.layout, "template": "simple_white", "title": title}
    return go.Figure(data=printable_values(plot.traces), layout=layout)


def frontier(data: pd.DataFrame | Content) -> Figure:
    """Draw step time against throughput, a rising line for each frontier.

    Error bars are 95 % intervals, within one launch where a point has only one (hover says which);
    very long ones are cut off. Undecided points are hollow and on no line; beaten ones are faint,
    without bars. Of modes that change the update, points with one worker are left out where there
    are others.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        Step time in ms across, logarithmic where it spans more than ten times, and samples/s up;
        knees and recommended points have a ring of their own.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(frontier_plot(_content(data)))


def scaling(data: pd.DataFrame | Content) -> Figure:
    """Draw the speed-up of larger worlds over the smallest one of their group, weak and strong.

    Of many groups, the eight of the highest throughput are shown; a click in the legend shows
    another one.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        Workers as a multiple of the fewest across, speed-up with its 95 % interval up, where
        launches give one; the dashed line is the ideal.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(scaling_plot(_content(data)))


def shares(data: pd.DataFrame | Content) -> Figure:
    """Draw the parts of a step for each point, those on frontiers first.

    The shares are from `dtsweep.analysis.bottleneck`.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        A bar per point, of shares of its mean step in percent; a part that was not measured is
        missing from it, and what limits the point is said under the mouse.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(shares_plot(_content(data)))


def exchange(data: pd.DataFrame | Content) -> Figure:
    """Draw the exposed exchange of a step against the exchange on its own, both in ms.

    Below the dashed line, a part of it hides behind other work.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(exchange_plot(_content(data)))


def settings(data: pd.DataFrame | Content) -> Figure:
    """Draw parallel coordinates: a line per point over its settings and main results.

    Drag along an axis to select lines.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(settings_plot(_content(data)))


def step_times(rows: pd.DataFrame) -> Figure:
    """Draw the times of a trial's steps in ms, its warm-up on a shaded ground.

    Args:
        rows: of one attempt, as `dtsweep.steps` gives them.

    Raises:
        SweepError: the rows are of no attempt or of several ones, or Plotly is not installed.
    """
    series = series_in(rows)
    if len(series) != 1:
        raise SweepError(
            f"rows are of {count_of(len(series), 'attempt')} with steps, and a plot is of one; "
            "choose it with rows[rows['attempt_id'] == ATTEMPT_ID]"
        )
    return figure_of(step_times_plot(*series.values()))


def importance(data: pd.DataFrame | Content) -> Figure:
    """Draw the share of each swept axis in the variation of the step time, by the model.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Returns:
        A bar for each axis and pair of axes; grey bars are axes that were varied together. Empty
        below eight measured points.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(importance_plot(_content(data), is_asked=True))


def memory(data: pd.DataFrame | Content, *, ranks: pd.DataFrame | None = None) -> Figure:
    """Draw the largest peak memory of a worker, per point.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.
        ranks: rows of the table `ranks`, which have the free memory of GPUs; None leaves it out.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(memory_plot(_content(data), ranks=ranks))


def energy(data: pd.DataFrame | Content) -> Figure:
    """Draw the energy of a sample in J, per point; empty where it is unknown.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(energy_plot(_content(data)))


def cost(data: pd.DataFrame | Content) -> Figure:
    """Draw the price of a million samples in USD, per point; empty where it is unknown.

    Args:
        data: one row per trial, as `dtsweep.load` gives it, or the content of a report on them.

    Raises:
        SweepError: Plotly is not installed.
    """
    return figure_of(cost_plot(_content(data)))


def _content(data: pd.DataFrame | Content) -> Content:
    """Content of a report, redacted as a page is: notebooks are shared."""
    if isinstance(data, Content):
        return _redacted(data)
    return redacted_content_of(Study(data), redactor_of_trials(data))


@lru_cache(maxsize=1)
def _redacted(content: Content) -> Content:
    """Redacted content, made once for all figures of a report."""
    return redacted(content, redactor_of_trials(content.study.frame))
