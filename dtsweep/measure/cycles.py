"""Cycles of points in turn: how far points differ, and when that is known well enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import Series, correlated_steps, students_t

LEAST_CYCLES = 3
"""Cycles that there are in any case, from which on they show their own noise."""

_TRIMMED = 0.2
"""Share of the cycles that is trimmed at each end, so that a late turn moves nothing.

Means, medians, Huber's estimator and trimmed means were compared on recorded drift and on simulated
late turns (docs/log/2026-11-29.md): on the records they differ by less than chance, late turns
move the mean alone by much, and the trimmed mean has the error that it says.
"""

_FITS = 20
"""Fits of cycles and points to each other, where points have not the same cycles."""


class _TurnEffects(NamedTuple):
    """Levels of the points of a group under equal conditions, and their standard errors."""

    levels: Series
    """(points,) logarithms, with the mean of all 0."""
    errors: Series
    """(points,) so that the squared error of a difference is the sum of both squares."""


def effects_of(logs: Series) -> _TurnEffects:
    """Fit levels of points and of cycles to logarithms of rates.

    The level of a cycle is its mean over the points, their own levels left out; that of a point is
    the trimmed mean of what remains. Its error is by the winsorized variance (Tukey & McLaughlin
    1963), of as many independent cycles as their autocorrelation leaves. The mean of m points takes
    a share of each point's own noise away, for which the factor m ÷ (m - 1) makes up.

    Args:
        logs: (points, cycles), three cycles of each point at least; nan where it had no turn. Each
            cycle has two points at least.

    >>> swings = np.array([0.0, 0.3, -0.2, 0.1, 0.5])
    >>> late = np.array([0.0, 0.0, 0.0, -9.0, 0.0])
    >>> effects_of(np.array([swings + 0.02, swings + late])).levels.round(3).tolist()
    [0.01, -0.01]
    """
    is_present = ~np.isnan(logs)
    common = logs[:, is_present.all(axis=0)]
    levels = np.zeros(len(logs))
    if common.size:
        levels = np.median(common - common.mean(axis=0), axis=1)
    for _ in range(1 if is_present.all() else _FITS):
        residuals = logs - np.nanmean(logs - levels[:, None], axis=0)
        kept = [_trimmed(row[present]) for row, present in zip(residuals, is_present, strict=True)]
        levels = np.array([values.mean() for values in kept])
    points = is_present.sum(axis=0)
    variances = []
    for row, present, values in zip(residuals, is_present, kept, strict=True):
        winsorized = np.clip(row[present], values[0], values[-1])
        cycles, m = len(winsorized), points[present].mean()
        variance = winsorized.var(ddof=1) * correlated_steps(winsorized) / cycles
        variances.append(variance * m / (m - 1) / (len(values) / cycles) ** 2)
    return _TurnEffects(levels - levels.mean(), np.sqrt(variances))


def _trimmed(values: Series) -> Series:
    """Sort values, without the smallest and the largest ones."""
    trimmed = int(_TRIMMED * len(values))
    return np.sort(values)[trimmed : len(values) - trimmed]


def in_columns(turns: Sequence[Sequence[float]]) -> Series:
    """Arrange series of turns as (points, cycles), nan where a point had no turn any more.

    Cycles of a single point, which compare nothing, are left out.
    """
    lengths = sorted(map(len, turns))
    found = np.full((len(turns), lengths[-2]), np.nan)
    for row, series in zip(found, turns, strict=True):
        kept = series[: lengths[-2]]
        row[: len(kept)] = kept
    return found


class _Standing(NamedTuple):
    """State of points in turn, by the cycles so far."""

    is_settled: bool
    """True if each point's distance from the best is known to a half-width, or is not 0."""
    is_behind: NDArray[np.bool_]
    """(points,) True if it is clearly not the best: further turns of it say little."""


def standing(logs: Series, has_left: NDArray[np.bool_], *, half_width: float) -> _Standing:
    """Compare points with the best one, by logarithms of what counts.

    Args:
        logs: (points, cycles) as `in_columns` gives them, two points at least; the best is the
            largest.
        has_left: (points,) True for those that were behind before, and stay so.
        half_width: of the 95 % interval of a distance, in logarithms.
    """
    levels, errors = effects_of(logs)
    best = int(np.where(has_left, -np.inf, levels).argmax())
    distances = levels[best] - levels
    cycles = (~np.isnan(logs)).sum(axis=1)
    widths = np.array([students_t(count - 1) for count in cycles])
    widths = widths * np.hypot(errors, errors[best])
    is_behind = has_left | (distances > 2 * widths)
    is_known = (widths <= half_width) | is_behind
    is_known[best] = True
    is_behind[best] = False
    return _Standing(bool(is_known.all()), is_behind)
