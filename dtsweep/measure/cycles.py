"""Cycles of points in turn: how far points differ, and when that is known well enough."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtsweep.measure.statistics import Series, correlated_steps, students_t

LEAST_CYCLES = 3
"""Cycles that there are in any case, from which on they show their own noise."""

_TRIMMED = 0.2
"""Share of the cycles that is trimmed at each end, so that a late turn moves nothing.

Means, medians, Huber's estimator and trimmed means were compared on recorded drift and on simulated
late turns (docs/log/2026-11-29.md): on the records they differ by less than chance, late turns
move the mean alone by much, and the trimmed mean has the error that it says.
"""


class _TurnEffects(NamedTuple):
    """Levels of the points of a group under equal conditions, and their standard errors."""

    levels: Series
    """(points,) logarithms, with the mean of all 0."""
    errors: Series
    """(points,) so that the squared error of a difference is the sum of both squares."""


def effects_of(logs: Series) -> _TurnEffects:
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
    trimmed = int(_TRIMMED * cycles)
    residuals = logs - logs.mean(axis=0)
    kept = np.sort(residuals, axis=1)[:, trimmed : cycles - trimmed]
    levels = kept.mean(axis=1)
    winsorized = np.clip(residuals, kept[:, :1], kept[:, -1:])
    correlated = np.array([correlated_steps(series) for series in winsorized])
    variances = winsorized.var(axis=1, ddof=1) * correlated / cycles
    variances *= points / (points - 1) / (1 - 2 * trimmed / cycles) ** 2
    return _TurnEffects(levels - levels.mean(), variances**0.5)


def is_settled(step_s: Series, samples: Series, *, half_width: float) -> bool:
    """True if each point's distance from the fastest one is known to a half-width, or is not 0.

    Distances are of logarithms of samples per second.

    Args:
        step_s: (points, cycles) mean step of each turn, in seconds.
        samples: (points,) of a step.
        half_width: of the 95 % interval of a distance.
    """
    if len(step_s) < 2:
        return True
    levels, errors = effects_of(np.log(samples[:, None] / step_s))
    fastest = int(levels.argmax())
    distances = np.delete(levels[fastest] - levels, fastest)
    t = students_t(step_s.shape[1] - 1)
    widths = t * np.delete(np.hypot(errors, errors[fastest]), fastest)
    return bool(((widths <= half_width) | (distances > 2 * widths)).all())
