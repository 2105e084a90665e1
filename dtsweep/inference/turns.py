"""Points that were measured in turn: their rates under equal conditions.

In a cycle each point of a group has a turn, so all of them see the same minute of the machine. The
ratio of two rates within a cycle has little of the drift that both share. What is estimated is the
ratio of rates *under equal conditions*; the rates themselves, with the drift, are those of the
trial's own window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtsweep.inference.variance import Numbers
from dtsweep.measure.statistics import correlated_steps

if TYPE_CHECKING:
    import pandas as pd

TRIMMED = 0.2
"""Share of the cycles that is trimmed at each end, so that a late turn moves nothing.

Means, medians, Huber's estimator and trimmed means were compared on recorded drift and on simulated
late turns (docs/log/2026-11-29.md): on the records they differ by less than chance, late turns
move the mean alone by much, and the trimmed mean has the error that it says.
"""

_LEAST_CYCLES = 3
"""Cycles from which on they show their own noise."""

_COLUMNS = {
    "samples_per_s": ("turn_samples_per_s", 1),
    "tokens_per_s": ("turn_samples_per_s", 1),
    "usd_per_million_samples": ("turn_samples_per_s", -1),
    "latency_s": ("turn_latency_s", 1),
}
"""Column of turns that a measured column follows from, and the power."""


class TurnEffects(NamedTuple):
    """Levels of the points of a group under equal conditions, and their standard errors."""

    levels: Numbers
    """(points,) logarithms, with the mean of all 0."""
    errors: Numbers
    """(points,) so that the squared error of a difference is the sum of both squares."""


def effects_of(logs: Numbers) -> TurnEffects:
    """Fit levels of points and of cycles to logarithms of rates.

    The level of a cycle is its mean over the points; that of a point is the trimmed mean of what
    remains. Its error is by the winsorized variance (Tukey & McLaughlin 1963), of as many
    independent cycles as their autocorrelation leaves. The mean of m points takes a share of each
    point's own noise away, for which the factor m ÷ (m - 1) makes up.

    Args:
        logs: (points, cycles), two points and three cycles at least.

    >>> swings = np.array([0.0, 0.3, -0.2, 0.1, 0.5])
    >>> late = np.array([0.0, 0.0, 0.0, -9.0, 0.0])
    >>> effects_of(np.array([swings + 0.02, swings + late])).levels.round(3).tolist()
    [0.01, -0.01]
    """
    points, cycles = logs.shape
    trimmed = int(TRIMMED * cycles)
    residuals = logs - logs.mean(axis=0)
    kept = np.sort(residuals, axis=1)[:, trimmed : cycles - trimmed]
    levels = kept.mean(axis=1)
    winsorized = np.clip(residuals, kept[:, :1], kept[:, -1:])
    correlated = np.array([correlated_steps(series) for series in winsorized])
    variances = winsorized.var(axis=1, ddof=1) * correlated / cycles
    variances *= points / (points - 1) / (1 - 2 * trimmed / cycles) ** 2
    return TurnEffects(levels - levels.mean(), variances**0.5)


def with_turns(
    columns: pd.DataFrame, trials: pd.DataFrame, of: str, *, sign: int = 1
) -> pd.DataFrame:
    """Move the values of trials that were measured in turn to their levels under equal conditions.

    The mean over a group stays that of its trials' own windows.

    Args:
        columns: a row per trial with `value`, the logarithm of a measured column times `sign`, and
            `value_error`.
        trials: the same rows, with the columns of turns.
        of: the measured column.
        sign: 1, or -1.

    Returns:
        These columns, and `in_turn`, the group of such a trial, where there is one.
    """
    name, power = _COLUMNS.get(of, ("turn_samples_per_s", 0))
    if not power or name not in trials or trials["turn_group"].isna().all():
        return columns
    columns = columns.assign(in_turn=None)
    windows = np.log(trials[name.removeprefix("turn_")].astype("float64"))
    for group, members in trials.groupby("turn_group", sort=False):
        logs = _logarithms(members[name])
        if logs is not None:
            rows, (levels, errors) = members.index, effects_of(logs)
            shifts = levels - (windows[rows] - windows[rows].mean())
            columns.loc[rows, "value"] += sign * power * shifts
            columns.loc[rows, "value_error"] = errors
            columns.loc[rows, "in_turn"] = group
    return columns


def _logarithms(turns: pd.Series[Any]) -> Numbers | None:
    """(points, cycles) logarithms of the cycles that all have; None if they are too few."""
    lists = [np.asarray(() if turn is None else turn, dtype=np.float64) for turn in turns]
    cycles = min(map(len, lists))
    values = np.array([turn[:cycles] for turn in lists])
    values = values[:, (np.isfinite(values) & (values > 0)).all(axis=0)]
    if len(values) < 2 or values.shape[1] < _LEAST_CYCLES:
        return None
    logs: Numbers = np.log(values)
    return logs
