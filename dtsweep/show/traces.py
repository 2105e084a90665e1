"""Step times of all trials of a page, in few characters, and the plot that shows one of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import without_canaries
from dtsweep.inference.spread import POINT
from dtsweep.report.content import Content
from dtsweep.report.labels import point_key, trial_label
from dtsweep.results.store import Results
from dtsweep.show.points import plot_points
from dtsweep.show.step_times_plot import MOST_STEPS, StepSeries, series_of, step_times_plot

if TYPE_CHECKING:
    import pandas as pd

_MOST_VALUES = 100_000
"""Number of step times that a page holds: about 1 MB."""

_LEAST_STEPS = 20
"""Number of step times that each trial has in any case."""

_DIGITS = 4

_READ = ("attempt_id", "label", "repeat", "status")

_EXAMPLE = StepSeries(
    steps=(0, 1, 2),
    step_ms=(1.0, 1.0, 1.0),
    warmup=1,
    warmup_end=1,
    median_ms=1.0,
    count=3,
)
"""A series with all that a plot may show: warm-up, measured steps, and their median."""


def trial_traces(content: Content, store: Results) -> list[dict[str, Any]]:
    """Read the step times of each trial, the trials in the order of the plots.

    Returns:
        JSON values, a dict for each trial with steps: `label`, `is_opened` (the recommended point's
        newest measured repeat), and `steps`: `words` on them,
        `first` step and `gaps` to each next one (None if all are 1), `step_ms`, and the other
        fields of `StepSeries`.
    """
    trials = _in_order(content)
    if trials.empty:
        return []
    most = min(MOST_STEPS, max(_LEAST_STEPS, _MOST_VALUES // len(trials)))
    series = series_of(store, set(trials["attempt_id"]), most=most)
    opened = _opened(trials[trials["attempt_id"].isin(series)], content)
    return [
        _trace(series[row["attempt_id"]], label=_label(row))
        | {"is_opened": row["attempt_id"] == opened}
        for row in trials[[*_READ]].to_dict("records")
        if row["attempt_id"] in series
    ]


def _opened(trials: pd.DataFrame, content: Content) -> str | None:
    """Attempt that a page shows first; None without a recommendation."""
    recommended = [point_key(choice.point) for choice in content.recommendations[:1]]
    measured = trials[trials["status"] == "ok"].sort_values("repeat", kind="stable")
    attempts = [
        str(row["attempt_id"])
        for row in measured.to_dict("records")
        if point_key(row) in recommended
    ]
    return attempts[-1] if attempts else None


def example_plot() -> dict[str, Any]:
    """Traces and layout of such a plot, whose numbers the page replaces by those of a trial."""
    plot = step_times_plot(_EXAMPLE)
    return {"name": "steps", "traces": list(plot.traces), "layout": dict(plot.layout)}


def _in_order(content: Content) -> pd.DataFrame:
    """Trials with their labels, in the order of the points of all plots, then by repeat.

    Trials of other points are last.
    """
    trials = without_canaries(content.study.frame)
    keys = [point_key(row) for row in trials[[*POINT]].to_dict("records")]
    names = {point.key: point.name for point in plot_points(content)}
    places = {key: place for place, key in enumerate(names)}
    for key, (_, row) in zip(keys, trials.iterrows(), strict=True):
        if key not in names:
            names[key] = trial_label(row, content.varying)
    return trials.assign(
        place=[places.get(key, len(places)) for key in keys],
        label=[names[key] for key in keys],
    ).sort_values(["place", "repeat"], kind="stable")


def _label(row: Mapping[Any, Any]) -> str:
    status = "" if row["status"] == "ok" else f", {row['status']}"
    return f"{row['label']} · repeat {row['repeat']}{status}"


def _trace(series: StepSeries, *, label: str) -> dict[str, Any]:
    plot = step_times_plot(series)
    gaps = [later - step for step, later in pairwise(series.steps)]
    steps = {
        "words": " ".join(filter(None, [plot.description, plot.subtitle])),
        "first": series.steps[0],
        "gaps": None if set(gaps) <= {1} else gaps,
        "step_ms": [float(f"{value:.{_DIGITS}g}") for value in series.step_ms],
        "warmup": series.warmup,
        "warmup_end": series.warmup_end,
        "median_ms": series.median_ms,
    }
    return {"label": label, "steps": steps}
