"""Smallest detectable difference of two points, and the launches to detect one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Reason

POWER = 0.8
"""Power: the probability to detect a difference."""

POWER_Z = 0.84
"""Quantile of the normal distribution at `POWER`."""

MOST_LAUNCHES = 100
"""More of each point are not counted: nobody runs them."""

_MANY_DEGREES = 1e6
"""As good as a normal distribution."""


def launches_for(sigma: float, share: float) -> int | None:
    """Give the launches of each of two points that detect a difference, each by itself.

    Args:
        sigma: standard deviation of launch means, as a share.
        share: the difference, as a share.

    Returns:
        Two at least; None for more than `MOST_LAUNCHES`.

    >>> launches_for(0.02, 0.05), launches_for(0.02, 0.001)
    (4, None)
    """
    launches = np.arange(2, MOST_LAUNCHES + 1)
    smallest = sigma * (2 / launches) ** 0.5 * noncentrality(2.0 * launches - 2)
    sufficient = (smallest <= np.log1p(share)).nonzero()[0]
    if not len(sufficient):
        return None
    return int(launches[sufficient[0]])


def sigma_interval(sigma: float, degrees: int) -> tuple[float, float]:
    """Give the 95 % interval of a standard deviation of normal values.

    >>> [round(end, 2) for end in sigma_interval(1.0, 10)]
    [0.7, 1.75]
    """
    from scipy.special import chdtri

    low, high = (sigma * (degrees / float(chdtri(degrees, p))) ** 0.5 for p in (0.025, 0.975))
    return low, high


def detectable(errors: Any, degrees: Any, *, level: float = 0.05) -> Numbers:
    """Give the true difference that a t test detects with probability `POWER`.

    Args:
        errors: standard errors of the difference.
        degrees: of freedom that the test has.
        level: two-sided significance level of the test.
    """
    from scipy.special import chdtri

    free = np.minimum(np.asarray(degrees, dtype=np.float64), _MANY_DEGREES)
    # With few degrees of freedom a standard error is too small more often than not. This factor
    # makes its median right.
    factor = np.asarray(free / chdtri(free, 0.5), dtype=np.float64) ** 0.5
    return np.asarray(errors * factor * noncentrality(degrees, level=level), dtype=np.float64)


def noncentrality(degrees: Any, *, level: float = 0.05) -> Numbers:
    """Give the noncentrality for which a two-sided t test has power `POWER`.

    Nan with less than one degree of freedom, which allows no sensible test.

    >>> noncentrality([0.5, 2.0, 1e6]).round(2).tolist()
    [nan, 5.65, 2.8]
    """
    from scipy.special import nctdtrinc, stdtrit

    free = np.minimum(np.asarray(degrees, dtype=np.float64), _MANY_DEGREES)
    # Below one SciPy takes seconds for it.
    free = np.where(free >= 1, free, np.nan)
    critical = stdtrit(free, 1 - level / 2)
    return np.asarray(nctdtrinc(free, 1 - POWER, critical), dtype=np.float64)


def untested_because(counts: Sequence[int]) -> Reason:
    """Give the reason why two points could not be tested.

    Args:
        counts: launches of each of the two.
    """
    if not all(counts):
        return Reason.NOT_MEASURED
    if max(counts) == 1:
        return Reason.ONE_LAUNCH_EACH
    return Reason.TOO_FEW_LAUNCHES
