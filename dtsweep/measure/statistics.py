"""From step times to rates and latencies with their intervals. Raw steps are kept; these are computed from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]


def effective_count(series: Series) -> float:
    """How many independent values a correlated series is worth, at least 3 and at most its length.

    By the lag-1 autocorrelation, corrected for its bias in short series.

    Args:
        series: (steps,) seconds, three or more.
    """
    n = len(series)
    centred = series - series.mean()
    power = float(centred @ centred)
    r1 = float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0
    rho = min(0.97, max(0.0, r1 + (1 + 3 * r1) / n))
    return max(3.0, n * (1 - rho) / (1 + rho))


def mean_half_width(series: Series) -> float | None:
    """Half of the 95 % interval of the mean within this launch, in seconds; None under 3 steps."""
    from scipy import stats

    if len(series) < 3:
        return None
    count = effective_count(series)
    return float(stats.t.ppf(0.975, count - 1) * series.std(ddof=1) / np.sqrt(count))


def quantile_interval(series: Series, p: float) -> tuple[float, float] | None:
    """95 % interval of a quantile by order statistics; None where the steps are too few for it.

    Args:
        series: (steps,) seconds.
        p: the quantile, 0 to 1.
    """
    from scipy import stats

    n = len(series)
    if n < 3:
        return None
    count = round(effective_count(series))
    low, high = int(stats.binom.ppf(0.025, count, p)), int(stats.binom.ppf(0.975, count, p)) + 1
    if low < 1 or high > count:
        return None
    ordered = np.sort(series)
    # The ranks hold among `count` independent values; the series has n, spread alike.
    return float(ordered[int(np.floor((low - 1) / count * n))]), float(
        ordered[min(n - 1, int(np.ceil(high / count * n)) - 1)]
    )


def slowest_rank(ranks: Sequence[Series]) -> Series:
    """Per step, the slowest rank: the step time of a synchronous trial.

    Args:
        ranks: a (steps,) series of each rank, all of the same length.
    """
    slowest: Series = np.max(np.stack(ranks), axis=0)
    return slowest


def steps_in(ends: Series, seconds: float) -> float:
    """How many steps ended within `seconds` of the start, the last one as a fraction.

    >>> steps_in(np.array([1.0, 2.0, 4.0]), 3.0)
    2.5
    """
    return float(np.interp(seconds, np.concatenate([[0.0], ends]), np.arange(len(ends) + 1)))
