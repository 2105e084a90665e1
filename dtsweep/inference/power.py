"""Smallest detectable difference of two points, and the launches to detect the observed one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dtsweep.inference.contrasts import Contrasts, counted_of
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import Numbers, pooled_is_better
from dtsweep.inference.verdicts import Reason
from dtsweep.measure.statistics import students_t

POWER = 0.8
"""Power: the probability to detect a difference, at 5 % error."""

MOST_LAUNCHES = 100
"""More of each point are not counted: nobody runs them."""

_MANY_DEGREES = 1e6
"""As good as a normal distribution."""


class Power(NamedTuple):
    """Power analysis of two points."""

    detectable: float
    """Logarithm of the smallest true ratio detected with probability `POWER`, or nan.

    It is nan without a test.
    """
    more_launches: int | None
    """Launches per point for which the estimated ratio is significant with probability `POWER`.

    0 if it already is.
    """
    reason: Reason | None
    """Reason for which that number is None."""


def power_of(found: Contrasts, launches: Launches, a: int, b: int, *, drift: float = 0.0) -> Power:
    """Say what the launches of two points can tell, by the error that their contrast has now.

    More launches are of the kind that there are: of both points where they are compared launch by
    launch, else of each by itself. They make the error smaller by their number alone, and its
    degrees of freedom more.

    Args:
        found: of the two alone, one by one.
        launches: logarithms of launch means.
        a: row of the first.
        b: row of the second.
        drift: logarithm of the ratio that these launches don't tell, whatever their error; further
            ones average it.
    """
    estimate, half_width, degrees = (
        float(each[0, 0]) for each in (found.estimate, found.half_width, found.degrees)
    )
    counts = launches.counts[[a, b]]
    if np.isnan(half_width):
        return Power(np.nan, None, untested_because(counts.tolist()))
    if abs(estimate) > half_width + drift:
        return Power(float(detectable(half_width / students_t(degrees), degrees)) + drift, 0, None)
    more = np.arange(MOST_LAUNCHES + 1)
    if found.paired[0, 0]:
        shared = int((launches.there[a] & launches.there[b]).sum())
        fewest = shared + more
        own = np.maximum(shared + more - 1, 0)
        gained = more
        shares = shared / (shared + more)
        pool = launches.together
    else:
        fewest = counts.min() + more
        own = counts.sum() - 2 + 2 * more
        gained = 2 * more
        shares = shares_after(counts, more)
        pool = launches.apart
    # A pool is left for the points' own spread where these have launches enough.
    pooled = pooled_is_better(own, pooled=counted_of(pool) + gained, launches=fewest)
    if found.pooled[0, 0]:
        free = np.where(pooled, degrees + gained, own)
    else:
        free = degrees + gained
    free[0] = degrees
    needed = detectable(half_width / students_t(degrees) * shares**0.5, free, known=degrees)
    return Power(float(needed[0]) + drift, *enough(estimate, needed))


def shares_after(counts: Any, more: Any) -> Numbers:
    """Remaining share of the variance of a difference of means after more launches of both.

    Args:
        counts: (2,) launches that there are.
        more: (numbers,) further ones of each.
    """
    left: Numbers = (1 / np.add.outer(counts, more)).sum(axis=0) / (1 / np.asarray(counts)).sum()
    return left


def enough(estimate: float, needed: Numbers) -> tuple[int | None, Reason | None]:
    """Give the number of further launches that tell an effect, or the reason why it is None.

    Args:
        estimate: of the effect.
        needed: ratios that are significant with 0, 1, 2 … `MOST_LAUNCHES` more.
    """
    telling = (abs(estimate) > needed[1:]).nonzero()[0]
    if len(telling):
        return (int(telling[0]) + 1, None)
    return (None, Reason.OVER_100_LAUNCHES)


def detectable(errors: Any, degrees: Any, *, known: Any = None, level: float = 0.05) -> Numbers:
    """Give the true difference that a t test tells with `POWER`.

    Args:
        errors: standard errors of the difference, or of what it will be.
        degrees: of freedom that the test has.
        known: degrees of freedom that the errors are known with; those of the test by default.
        level: error of the test.
    """
    from scipy.special import chdtri

    free = np.minimum(
        np.asarray(degrees if known is None else known, dtype=np.float64), _MANY_DEGREES
    )
    # An error of few degrees of freedom is mostly too small; so it is as likely too large.
    factor = np.asarray(free / chdtri(free, 0.5), dtype=np.float64) ** 0.5
    return np.asarray(errors * factor * noncentrality(degrees, level=level), dtype=np.float64)


def noncentrality(degrees: Any, *, level: float = 0.05) -> Numbers:
    """Give the same in standard errors.

    Nan with less than one degree of freedom, which allows no sensible test.

    >>> noncentrality([0.5, 2.0, 1e6]).round(2).tolist()
    [nan, 5.65, 2.8]
    """
    from scipy.special import nctdtrinc, stdtrit

    free = np.minimum(np.asarray(degrees, dtype=np.float64), _MANY_DEGREES)
    # Below one SciPy takes seconds for it.
    free = np.where(free >= 1, free, np.nan)
    return np.asarray(nctdtrinc(free, 1 - POWER, stdtrit(free, 1 - level / 2)), dtype=np.float64)


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
