"""End of the warm-up, found in the step times, and a test that the rest is steady."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dtsweep.measure.statistics import Series, autocorrelation, effective_count, students_t

GROUP, SHORT_GROUP, SHORT = 5, 2, 40
"""Steps whose median is one value for the search, and their number below `SHORT` steps."""

_FEWEST_GROUPS = 4
"""With fewer there is nothing to search in."""

_BATCHES = 20
"""Medians that a drift is found in, at most."""

_LEAST_SPIKE = 0.01
"""Least share of the median step that counts as a difference.

Clocks that count in microseconds make smaller ones.
"""

SPIKY, BY_CHANCE = 0.01, 0.01
"""Share of spikes that is too much, and the allowed probability of a false alarm."""

SURE, SURE_AFTER_WARMUP = 1.75, 0.6
"""Half-widths of 95 % intervals that tell a difference from noise.

More than one, since a cut is the best of many and a window is examined in several ways. Less after
a warm-up: what is left of it may well still fall.
"""


AT_START, AT_START_STEPS = 0.1, 12
"""The start of a window: this share of its steps, or these steps if they are more."""

_DECAYED = 0.5
"""Share of the difference to the rest that a decay leaves in the second half of the first steps.

If more steps than the start are left out and don't decay, it is no warm-up: the level has shifted,
and may shift again.
"""


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    """Steady part of a window, and its drift."""

    start: int | None
    """Steps to leave out; None where no part is steady."""

    drift: float | None
    """Rise of the step time from the first steady step to the last, as a share of the median.

    Of the whole window if no part is steady; None under 3 steps.
    """

    unsettled: float = 0.0
    """Difference of the first half of the steps to the second, as a share, if no part is steady."""

    shift: float = 0.0
    """Difference of the steps that are left out to the rest, as a share, if they are no warm-up."""

    is_sure: bool
    """True if the drift is more than noise."""

    @property
    def moves(self) -> float:
        """By how much, as a share, the step time surely rose, fell or shifted."""
        drift = 0.0
        if self.is_sure:
            drift = abs(self.drift or 0.0)
        return max(drift, self.unsettled, self.shift)

    def drifts(self, *, within: float) -> bool:
        """True if the step time surely changed by more than a share of it, but for a warm-up."""
        return self.moves > within

    def widen(self, share: float, *, within: float) -> float | None:
        """Widen the half-width of the mean, a share of it, by what `moves`; None where it `drifts`.

        The mean that it comes to in the end is not known then.
        """
        if self.drifts(within=within):
            return None
        return share + self.moves

    def kind(self, *, within: float) -> str:
        """Name how the window became steady.

        Returns:
            `flat`; `warmup`: steady after its first steps; `slowdown`: it rises to its end; `none`:
            it falls to its end, its level shifted, or no part is steady.
        """
        if self.drifts(within=within):
            if self.is_sure and (self.drift or 0.0) > within:
                return "slowdown"
            return "none"
        if self.start:
            return "warmup"
        return "flat"


def steadiness(series: Series) -> Steadiness:
    """Find the steady part of a window.

    Args:
        series: (steps,) seconds, from the first step after the hard skip.
    """
    start = steady_from(series)
    half = len(series) // 2
    unsettled = 0.0
    if start is None:
        unsettled = float(abs(series[:half].mean() / series[half:].mean() - 1))
    rest = series[start or 0 :]
    if len(rest) < 3:
        return Steadiness(start=start, drift=None, is_sure=False, unsettled=unsettled)
    rise, error = drift(rest)
    needed = (SURE_AFTER_WARMUP if start else SURE) * error
    return Steadiness(
        start=start,
        drift=rise,
        is_sure=abs(rise) > needed,
        unsettled=unsettled,
        shift=_shift(series[: start or 0], rest),
    )


def _shift(left_out: Series, rest: Series) -> float:
    """Difference of a part that is left out to the rest, as a share; 0 if it is a warm-up."""
    if len(left_out) <= max(AT_START * (len(left_out) + len(rest)), AT_START_STEPS):
        return 0.0
    half = len(left_out) // 2
    level = float(np.median(rest))
    first = float(np.median(left_out[:half])) - level
    second = float(np.median(left_out[half:])) - level
    if abs(second) <= _DECAYED * abs(first):
        return 0.0
    return abs(float(np.median(left_out)) / level - 1)


def spikes(series: Series) -> NDArray[np.bool_]:
    """Mark the steps that stand out from their neighbours (a Hampel filter).

    Args:
        series: (steps,) seconds.

    Returns:
        (steps,), True where a step is further from the median of the 11 around it than 4 times the
        usual distance (1.4826 × the median of all such distances), and than `_LEAST_SPIKE` of the
        median step.
    """
    distances = np.abs(series - _local_medians(series))
    marked: NDArray[np.bool_] = distances > max(
        4 * 1.4826 * np.median(distances), _LEAST_SPIKE * np.median(series)
    )
    return marked


def is_spiky(series: Series) -> bool:
    """True if significantly more than 1 % of steps are spikes; false in 99 % of healthy windows.

    Args:
        series: (steps,) seconds. A single spike is never enough.
    """
    from scipy.special import bdtrc

    return bool(bdtrc(int(spikes(series).sum()) - 1, len(series), SPIKY) < BY_CHANCE)


def steady_from(series: Series) -> int | None:
    """Find the step with which the steady part begins; None where there is none yet.

    MSER (White 1997) on medians of groups of steps: the cut that makes the mean of the rest most
    certain. It is taken where the steps before it surely differ from those after it: noise has such
    a cut too.

    Args:
        series: (steps,) seconds, from the first step after the hard skip.

    Returns:
        Steps to leave out, whole groups; None if the best cut leaves less than half.
    """
    if len(series) < SHORT:
        size = SHORT_GROUP
    else:
        size = GROUP
    groups = len(series) // size
    if groups < _FEWEST_GROUPS:
        return 0
    smooth = np.where(spikes(series), _local_medians(series), series)
    medians = np.median(smooth[: groups * size].reshape(groups, size), axis=1)
    # Equal medians must give exact zeros: rounding would find a warm-up among them.
    medians -= np.median(medians)
    # Sums over the rest after each cut, from the end: all cuts at once.
    counts = np.arange(groups, 0, -1)
    sums = np.cumsum(medians[::-1])[::-1]
    squares = np.cumsum((medians**2)[::-1])[::-1]
    spread = np.maximum(squares - sums**2 / counts, 0.0) / counts.astype(np.float64) ** 2
    cut = int(np.argmin(spread[: int(0.6 * groups) + 1]))
    if not cut or not _surely_differ(smooth[: cut * size], smooth[cut * size :]):
        return 0
    if cut > 0.5 * groups:
        return None
    return cut * size


def _surely_differ(before: Series, after: Series) -> bool:
    """True if means of two parts differ by more than the second part's noise.

    The noise of the first part may contain the difference.
    """
    worth = effective_count(after)
    error = float(after.std(ddof=1)) * math.sqrt(
        1 / max(1.0, len(before) * worth / len(after)) + 1 / worth
    )
    return bool(abs(before.mean() - after.mean()) > SURE * students_t(worth - 1) * error)


def drift(series: Series) -> tuple[float, float]:
    """Rise of the step time from the first step to the last, and the part that noise explains.

    Theil and Sen's slope of the medians of up to 20 batches: a few odd steps don't move it.

    Args:
        series: (steps,) seconds of the steady part, three or more.

    Returns:
        The rise, and half of its 95 % interval, both as shares of the median step.
    """
    size = math.ceil(len(series) / _BATCHES)
    batches = len(series) // size
    last = series[len(series) - batches * size :]
    medians = np.median(last.reshape(batches, size), axis=1)
    first, second = np.triu_indices(batches, 1)
    slope = np.median((medians[second] - medians[first]) / (second - first))
    residuals = medians - slope * np.arange(batches)
    residuals -= residuals.mean()
    rho = autocorrelation(residuals, fitted=2)
    error = math.sqrt(
        float(residuals @ residuals)
        / (batches - 2)
        * 12
        / (batches * (batches**2 - 1))
        * (1 + rho)
        / (1 - rho)
    )
    rise = slope * (batches - 1)
    half = students_t(batches - 2) * error * (batches - 1)
    median = np.median(series)
    return float(rise / median), float(half / median)


def _local_medians(series: Series) -> Series:
    """Running median of each step and the five before and after it; the ends are mirrored."""
    if len(series) < 11:
        return np.full(len(series), np.median(series))
    padded = np.pad(series, 5, mode="reflect")
    medians: Series = np.median(sliding_window_view(padded, 11), axis=1)
    return medians
