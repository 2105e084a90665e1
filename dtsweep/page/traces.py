"""Step times of all trials of a page, in few characters, and the plot that shows one of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import without_canaries
from dtsweep.plots.step_series import MOST_STEPS, StepSeries, series_in
from dtsweep.plots.step_times_plot import step_times_plot
from dtsweep.report.content import Content
from dtsweep.report.labels import point_key, trial_label
from dtsweep.results.store import Results, frame_of

if TYPE_CHECKING:
    import pandas as pd

_MOST_VALUES = 120_000
"""Number of step times that a page holds: about 1 MB."""

_LEAST_STEPS = 20
"""Number of step times that each trial has in any case."""

_DIGITS = 4

_EXAMPLE = StepSeries(
    steps=(0, 1, 2),
    step_ms=(1.0, 1.0, 1.0),
    warmup=1,
    warmup_end=1,
    median_ms=1.0,
    count=3,
)
"""A series with all that a plot may show: warm-up, measured steps, and their median."""


def traces_of(content: Content, store: Results) -> list[dict[str, Any]]:
    """Read the step times of each trial, the trials in the order of the table of points.

    Args:
        content: of the report.
        store: of the results.

    Returns:
        JSON values, a dict for each trial with steps: `label`, `words` and `subtitle` (of the
        plot), `first` step and `gaps` to each next one (None if all are 1), `step_ms`, and the
        other fields of `StepSeries`.
    """
    trials = _in_order(content)
    if trials.empty:
        return []
    rows = frame_of(store.table("steps", attempts=set(trials["attempt_id"])))
    most = min(MOST_STEPS, max(_LEAST_STEPS, _MOST_VALUES // len(trials)))
    series = series_in(rows, most=most)
    return [
        _trace(series[row["attempt_id"]], label=_label(row, content))
        for _, row in trials.iterrows()
        if row["attempt_id"] in series
    ]


def example_plot() -> dict[str, Any]:
    """Traces and layout of such a plot, whose numbers the page replaces by those of a trial."""
    plot = step_times_plot(_EXAMPLE)
    return {"name": "steps", "traces": list(plot.traces), "layout": dict(plot.layout)}


def _in_order(content: Content) -> pd.DataFrame:
    """Trials in the order of the points of all frontiers, then by repeat; others are last."""
    trials = without_canaries(content.study.frame)
    rows = [row for frontier in content.frontiers for row in frontier.points.to_dict("records")]
    places = {point_key(row): place for place, row in enumerate(rows)}
    place_of = [places.get(point_key(row), len(places)) for row in trials.to_dict("records")]
    return trials.assign(place=place_of).sort_values(["place", "repeat"], kind="stable")


def _label(row: pd.Series[Any], content: Content) -> str:
    status = "" if row["status"] == "ok" else f", {row['status']}"
    return f"{trial_label(row, content.varying)} · repeat {row['repeat']}{status}"


def _trace(series: StepSeries, *, label: str) -> dict[str, Any]:
    plot = step_times_plot(series)
    gaps = [later - step for step, later in pairwise(series.steps)]
    return {
        "label": label,
        "words": plot.description,
        "subtitle": plot.subtitle,
        "first": series.steps[0],
        "gaps": None if set(gaps) <= {1} else gaps,
        "step_ms": [float(f"{value:.{_DIGITS}g}") for value in series.step_ms],
        "warmup": series.warmup,
        "warmup_end": series.warmup_end,
        "median_ms": series.median_ms,
    }
