"""Smallest difference of two points that a test detects, and why there is no test."""

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

_MANY_DEGREES = 1e6
"""As good as a normal distribution."""


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
