"""Where the warm-up ends, found in the step times, and whether what follows is steady."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dtsweep.measure.statistics import Series

GROUP = 5
"""Steps whose median is one value for the search."""

FEWEST_GROUPS = 4
"""With fewer there is nothing to search in."""


def spikes(series: Series) -> NDArray[np.bool_]:
    """Mark the steps that stand out from their neighbours (a Hampel filter).

    Args:
        series: (steps,) seconds.

    Returns:
        (steps,), True where a step is further from the median of the 11 around it than 4 times the usual
        distance (1.4826 × the median of all such distances).
    """
    away = np.abs(series - _local_medians(series))
    marked: NDArray[np.bool_] = away > 4 * 1.4826 * np.median(away)
    return marked


def steady_from(series: Series) -> int | None:
    """Find the step with which the steady part begins; None where there is none yet.

    MSER (White 1997) on medians of five steps: the cut that makes the mean of the rest most certain.

    Args:
        series: (steps,) seconds, from the first step after the hard skip.

    Returns:
        Steps to leave out, a multiple of five; None if the best cut leaves less than half.
    """
    groups = len(series) // GROUP
    if groups < FEWEST_GROUPS:
        return 0
    smooth = np.where(spikes(series), _local_medians(series), series)
    medians = np.median(smooth[: groups * GROUP].reshape(groups, GROUP), axis=1)
    # Equal medians must give exact zeros: rounding would find a warm-up among them.
    medians -= np.median(medians)
    # Sums over the rest after each cut, from the end: all cuts at once.
    left = np.arange(groups, 0, -1)
    sums, squares = np.cumsum(medians[::-1])[::-1], np.cumsum((medians**2)[::-1])[::-1]
    spread = np.maximum(squares - sums**2 / left, 0.0) / left.astype(np.float64) ** 2
    cut = int(np.argmin(spread[: int(0.6 * groups) + 1]))
    return None if cut > 0.5 * groups else cut * GROUP


def drift(series: Series) -> float:
    """What the step time rises by from the first to the last step, as a share of its median.

    Theil and Sen's slope of the medians of up to 20 batches: a few odd steps don't move it.

    Args:
        series: (steps,) seconds of the steady part, three or more.
    """
    batches = max(2, min(20, len(series) // 3))
    size = len(series) // batches
    medians = np.median(series[len(series) - batches * size :].reshape(batches, size), axis=1)
    first, second = np.triu_indices(batches, 1)
    slope = np.median((medians[second] - medians[first]) / (second - first))
    return float(slope * (batches - 1) / np.median(series))


def steady_class(series: Series, *, within: float) -> str:
    """Name how a series became steady.

    Args:
        series: (steps,) seconds after the hard skip.
        within: the drift that still counts as steady, as a share.

    Returns:
        `flat`; `warmup`: steady after its first steps; `slowdown`: it rises to its end; `none`: it falls to its
        end, or no part is steady.
    """
    start = steady_from(series)
    rest = series[start:]
    rise = drift(rest) if len(rest) >= 3 else 0.0
    if rise > within:
        return "slowdown"
    if start is None or rise < -within:
        return "none"
    return "warmup" if start else "flat"


def _local_medians(series: Series) -> Series:
    """The median of each step and the five before and after it; at the ends the series is mirrored."""
    if len(series) < 11:
        return np.full(len(series), np.median(series))
    medians: Series = np.median(sliding_window_view(np.pad(series, 5, mode="reflect"), 11), axis=1)
    return medians
