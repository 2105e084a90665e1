"""Rates and latencies with their intervals, computed from the raw step times, which are kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.sweep.settings import LEAST_HALF_WIDTH

Series = NDArray[np.float64]

_BATCH_STEPS = 3
"""Fewer steps make no batch."""

NOISE_FROM = 3
"""Steps that show their own noise."""

_LEAST_GAP = 0.01
"""Share of the median step by which two clusters lie apart."""

_PAUSE_S = 0.38
"""Longest pause that may still come; half of that for a shorter step.

The longest with which a quiet window of `max_seconds` is known to `half_width`, as they are by
default: 3 × 0.38 s of 60 s are 1.9 %. With 50 ms the intervals of long steps cover half of what
they should (docs/log/).
"""


def autocorrelation(series: Series, *, fitted: int = 1) -> float:
    """Lag-1 autocorrelation, corrected for its bias in short series; from 0 to 0.97.

    Args:
        series: (steps,) seconds.
        fitted: numbers that are taken out of it: the mean; or 2, the mean and a slope.
    """
    n = len(series)
    centred = series - series.mean()
    power = float(centred @ centred)
    r1 = 0.0
    if power > 0:
        r1 = float(centred[1:] @ centred[:-1]) / power
    return min(0.97, max(0.0, r1 + (fitted + (fitted + 2) * r1) / n))


def effective_count(series: Series) -> float:
    """Number of independent values a correlated series is worth, at least 3 and at most its length.

    Args:
        series: (steps,) seconds, three or more.
    """
    rho = autocorrelation(series)
    return max(3.0, len(series) * (1 - rho) / (1 + rho))


def mean_half_width(series: Series) -> float | None:
    """Half of the 95 % interval of the mean within this launch, in seconds; None under 3 steps.

    The widest of three: by the effective count, by 8 batch means, and by 16 batch means that may
    resemble each other. Each is too narrow in some regime (`benchmarks/stopping.py`).

    Args:
        series: (steps,) seconds; where a pattern repeats, (periods,) means of a period.
    """
    if len(series) < 3:
        return None
    count = effective_count(series)
    widths = [students_t(count - 1) * float(series.std(ddof=1)) / math.sqrt(count)]
    if len(series) >= 8 * _BATCH_STEPS:
        widths.append(students_t(7) * _deviation_of_means(series, 8) / math.sqrt(8))
    if len(series) >= 16 * _BATCH_STEPS:
        rho = autocorrelation(_batches(series, 16).mean(axis=1))
        inflation = min(3.0, (1 + rho) / (1 - rho))
        widths.append(students_t(15) * _deviation_of_means(series, 16) / 4 * math.sqrt(inflation))
    return float(max(widths))


def reported_half_width(series: Series, *, period: int = 1) -> float | None:
    """Half of the 95 % interval of the mean as it is reported, in seconds; None under 3 steps.

    Args:
        series: (periods,) mean steps of periods, in seconds.
        period: steps of a period.
    """
    half = mean_half_width(series)
    if half is None:
        return None
    return with_unseen(half, mean_s=float(series.mean()), steps=len(series) * period)


def with_unseen(half_s: float, *, mean_s: float, steps: int) -> float:
    """Widen the half-width of a mean by rare events, to at least `LEAST_HALF_WIDTH` of the mean.

    What did not come in so many steps may come in 3 of them (95 % sure), and then takes half a
    step, or `_PAUSE_S`. Squares add up, because the two are independent.

    >>> with_unseen(0.0, mean_s=0.1, steps=100)
    0.0015
    """
    unseen_s = 3 / steps * min(mean_s / 2, _PAUSE_S)
    return max(math.hypot(half_s, unseen_s), LEAST_HALF_WIDTH * mean_s)


def over_periods(series: Series, period: int) -> Series:
    """Means of whole periods.

    With an exchange in every `period`-th step, steps differ by pattern, not by chance.

    >>> over_periods(np.array([1.0, 3.0, 2.0, 4.0]), 2)
    array([2., 3.])
    """
    steps = len(series) // period * period
    means: Series = series[:steps].reshape(-1, period).mean(axis=1)
    return means


def correlation_time(series: NDArray[Any], *, strata: NDArray[np.int64] | None = None) -> float:
    """Estimate how many values of a series are worth one that is independent: 1 and more.

    One and twice the sum of the autocorrelations, by Geyer's initial monotone sequence (1992):
    neighbouring lags are added in pairs, which fall and stay positive in a reversible chain, and
    the sum ends with the first pair that isn't.

    Args:
        series: (steps,) values, one or more.
        strata: (steps,) which of several kinds each step is, from 0; what the kinds differ by is a
            pattern, not noise.
    """
    n = len(series)
    if strata is None:
        centred = series - series.mean()
    else:
        centred = (
            series
            - (np.bincount(strata, weights=series) / np.maximum(1, np.bincount(strata)))[strata]
        )
    size = 2 ** math.ceil(math.log2(2 * n))
    powers = np.abs(np.fft.rfft(centred, size)) ** 2
    covariances = np.fft.irfft(powers, size)[: n // 2 * 2]
    # Equal values have no noise but that of rounding.
    if n < 2 or covariances[0] <= n * (1e-12 * float(np.abs(series).max())) ** 2:
        return 1.0
    pairs = covariances.reshape(-1, 2).sum(axis=1) / covariances[0]
    ended = np.flatnonzero(pairs <= 0)
    if len(ended):
        positive = pairs[: ended[0]]
    else:
        positive = pairs
    return max(1.0, 2 * float(np.minimum.accumulate(positive).sum()) - 1)


def correlated_steps(series: Series) -> float:
    """Count the steps of a series per independent step: at least 1, the larger of two estimates.

    Args:
        series: (steps,) seconds, three or more.
    """
    return max(correlation_time(series), len(series) / effective_count(series))


def standard_error(series: Series) -> float | None:
    """Standard error of the mean within this launch, by `correlation_time`; None under 3 steps.

    What a half-width adds to be on the safe side (Student's t, the widest of several, a floor) is
    not in it.

    Args:
        series: (steps,) seconds; where a pattern repeats, (periods,) means of a period.
    """
    if len(series) < 3:
        return None
    return float(series.std(ddof=1) * math.sqrt(correlation_time(series) / len(series)))


def quantile_interval(
    series: Series, p: float, *, strata: NDArray[np.int64] | None = None
) -> tuple[float, float] | None:
    """95 % interval of a quantile by order statistics; None where the steps are too few for it.

    The series counts as many independent values as its indicator has, step by step "not above the
    quantile": what makes neighbours similar is seen near the quantile, where a few large spikes
    don't hide it.

    Args:
        series: (steps,) seconds in the order of time; of workers that step apart all together.
        p: the quantile, 0 to 1.
        strata: kinds of steps, as in `correlation_time`.
    """
    n = len(series)
    if n < 3:
        return None
    values = round(
        n / correlation_time((series <= np.quantile(series, p)).astype(np.float64), strata=strata)
    )
    ranks = _quantile_ranks(values, p)
    if ranks is None:
        return None
    low, high = ranks
    ordered = np.sort(series)
    # The ranks hold among so many independent values; the series has n, spread alike.
    return float(ordered[int(np.floor((low - 1) / values * n))]), float(
        ordered[min(n - 1, int(np.ceil(high / values * n)) - 1)]
    )


def _quantile_ranks(values: int, p: float) -> tuple[int, int] | None:
    """Ranks of the ends of a quantile's 95 % interval, the smallest value's is 1.

    None where the values are too few for an interval.

    >>> _quantile_ranks(100, 0.5), _quantile_ranks(50, 0.99)
    ((40, 61), None)

    Args:
        values: number of independent values.
        p: the quantile, 0 to 1.
    """
    low = _binomial_quantile(0.025, values, p)
    high = _binomial_quantile(0.975, values, p) + 1
    if low < 1 or high > values:
        return None
    return low, high


def least_values(p: float) -> int:
    """Least number of independent values from which on a quantile has a 95 % interval.

    >>> least_values(0.5), least_values(0.99)
    (6, 368)

    Args:
        p: the quantile, between 0 and 1.
    """
    return next(values for values in itertools.count(1) if _quantile_ranks(values, p))


def _binomial_quantile(q: float, n: int, p: float) -> int:
    """The smallest number of successes in n tries that is not exceeded with probability q.

    >>> _binomial_quantile(0.025, 100, 0.5), _binomial_quantile(0.975, 100, 0.5)
    (40, 60)
    """
    # scipy.stats takes half a second to import.
    from scipy.special import bdtr, bdtrik

    successes = math.ceil(bdtrik(q, n, p))
    is_one_less = successes > 0 and bdtr(successes - 1, n, p) >= q
    if is_one_less:
        return successes - 1
    return successes


def is_bimodal(series: Series) -> bool:
    """True if step times form two clusters, each of at least a tenth of the steps, with a gap.

    After the best split in two, the means are further apart than 4 / √2 times the root of the
    summed variances (Ashman's D above 4; a split Gaussian has 2.6, a split uniform distribution
    3.5). Few steps have gaps by chance: D must be above 4 + 30 / steps. Clusters less than
    `_LEAST_GAP` apart are none: a clock counts in steps too.

    Args:
        series: (steps,) seconds.
    """
    n = len(series)
    if n < 20:
        return False
    # From the median, so that equal steps make exact zeros.
    ordered = np.sort(series) - np.median(series)
    cuts = np.arange(math.ceil(n / 10), n - math.ceil(n / 10) + 1)
    sums = np.cumsum(ordered)
    squares = np.cumsum(ordered**2)
    below = sums[cuts - 1] / cuts
    above = (sums[-1] - sums[cuts - 1]) / (n - cuts)
    variance_below = squares[cuts - 1] / cuts - below**2
    variance_above = (squares[-1] - squares[cuts - 1]) / (n - cuts) - above**2
    best = int(np.argmin(variance_below * cuts + variance_above * (n - cuts)))
    spread = math.sqrt(max(0.0, float(variance_below[best] + variance_above[best])))
    gap = float(above[best] - below[best])
    if gap <= _LEAST_GAP * float(np.median(series)):
        return False
    return gap * math.sqrt(2) > (4 + 30 / n) * spread


def step_times_together(
    starts: Sequence[Series], times: Sequence[Series], *, period: int = 1
) -> Series:
    """Mean step of each sync period of ranks that step together: (periods,) seconds.

    A period lasts from one latest end to the next, so that periods add up to the time from the
    first start to the last end. The slowest rank's own time of each step would be too long: the
    ends scatter from rank to rank, and what a rank gains in one step it loses in the next.

    Two steps on two ranks:

    >>> one, other = np.array([1.0, 3.0]), np.array([2.0, 2.0])
    >>> step_times_together([np.array([0.0, 1.0]), np.array([0.0, 2.0])], [one, other])
    array([2., 2.])

    Args:
        starts: a (steps,) series of each rank, in seconds from the common start.
        times: the steps' own lengths, of the same shape.
        period: steps after which ranks wait for each other; an unfinished period is left out.
    """
    latest = np.max(np.stack(starts) + np.stack(times), axis=0)
    ends = latest[period - 1 :: period]
    begin = max(rank[0] for rank in starts)
    # Equal steps must come out equal: sums of seconds round far below a picosecond.
    steps: Series = np.round(np.diff(ends, prepend=begin) / period, 12)
    return steps


def steps_in(ends: Series, seconds: Any) -> Any:
    """Number of steps ended within `seconds` of the start, with the last one as a fraction.

    `seconds` is one moment or an array.

    >>> float(steps_in(np.array([1.0, 2.0, 4.0]), 3.0))
    2.5
    """
    edges = np.concatenate([[0.0], ends])
    return np.interp(seconds, edges, np.arange(len(edges)))


def students_t(degrees: Any, *, level: float = 0.05) -> Any:
    """Factor from a standard error to half of a 95 % interval; nan without degrees of freedom.

    Another `level` than 5 % gives another interval.

    >>> round(float(students_t(2)), 3)
    4.303
    """
    # scipy.stats.t takes a tenth of a millisecond for this: too long inside a window.
    from scipy.special import stdtrit

    degrees = np.asarray(degrees, dtype=np.float64)
    if degrees.size < 1_000:
        return stdtrit(degrees, 1 - level / 2)
    # Tables of pairs have few different values.
    values, places = np.unique(degrees, return_inverse=True)
    return stdtrit(values, 1 - level / 2)[places].reshape(degrees.shape)


def _batches(series: Series, count: int) -> Series:
    """The latest steps in `count` batches of equal length."""
    size = len(series) // count
    batches: Series = series[len(series) - count * size :].reshape(count, size)
    return batches


def _deviation_of_means(series: Series, count: int) -> float:
    return float(_batches(series, count).mean(axis=1).std(ddof=1))
