"""Smallest detectable difference of two points, and the launches to detect the observed one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dtsweep.inference.contrasts import Contrasts, launch_degrees_of
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import Numbers, pooled_is_better
from dtsweep.inference.verdicts import Reason

POWER = 0.8
"""Power: the probability to detect a difference."""

POWER_Z = 0.84
"""Quantile of the normal distribution at `POWER`."""

MOST_LAUNCHES = 100
"""More of each point are not counted: nobody runs them."""

_MANY_DEGREES = 1e6
"""As good as a normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Test:
    """Test of a difference, and of equality."""

    level: float = 0.05
    """Two-sided significance level."""
    zone: float = 0.0
    """Logarithm of the ratio up to which points count as equal."""
    drift: float = 0.0
    """Systematic logarithm of a ratio that the launches can't rule out, added to the half-width."""
    drift_stays: bool = False
    """True if further launches have it too, as launches that follow each other.

    Else they average it out.
    """


_PLAIN = Test()
"""Test at 5 %, without an indifference zone and drift."""


class PowerAnalysis(NamedTuple):
    """Power analysis of two points."""

    detectable: float
    """Logarithm of the smallest true ratio detected with probability `POWER`, or nan.

    It is nan without a test.
    """
    more_launches: int | None
    """Further launches per point that decide with probability `POWER`, if the estimate is true.

    They show the difference, or that the points are equal within an indifference zone. 0 if it is
    decided already.
    """
    reason: Reason | None
    """Reason for which that number is None."""


def power_of(
    contrast: Contrasts, launches: Launches, a: int, b: int, *, test: Test = _PLAIN
) -> PowerAnalysis:
    """Compute what the launches of two points can detect, by the present error of their contrast.

    Further launches are like the present ones: they measure both points where these are compared
    launch by launch, else each point by itself. They reduce the error by their number alone, and
    add degrees of freedom.

    Args:
        contrast: of the two points alone.
        launches: logarithms of launch means.
        a: row of the first.
        b: row of the second.
        test: of the two.
    """
    estimate, degrees = float(contrast.estimate[0, 0]), float(contrast.degrees[0, 0])
    error = float(contrast.error[0, 0])
    half_width = float(contrast.half_width_at(test.level)[0, 0]) + test.drift
    counts = launches.counts[[a, b]]
    if np.isnan(half_width):
        return PowerAnalysis(np.nan, None, untested_because(counts.tolist()))
    if abs(estimate) > half_width or abs(estimate) + half_width <= test.zone:
        return PowerAnalysis(
            float(detectable(error, degrees, level=test.level)) + test.drift, 0, None
        )
    shares, degrees_after = _after_launches(contrast, launches, a, b)
    needed = detectable(error * shares**0.5, degrees_after, error_degrees=degrees, level=test.level)
    lasting = test.drift if test.drift_stays else 0.0
    more, reason = _enough(estimate, needed, lasting=lasting)
    if test.zone > abs(estimate):
        until_equal, _ = _enough(test.zone - abs(estimate), needed, lasting=lasting)
        if until_equal is not None and (more is None or until_equal < more):
            more, reason = until_equal, None
    return PowerAnalysis(float(needed[0]) + test.drift, more, reason)


def _after_launches(
    contrast: Contrasts, launches: Launches, a: int, b: int
) -> tuple[Numbers, Numbers]:
    """Share of the variance, and degrees of freedom, after 0, 1, 2 … `MOST_LAUNCHES` more."""
    degrees = float(contrast.degrees[0, 0])
    counts = launches.counts[[a, b]]
    further = np.arange(MOST_LAUNCHES + 1)
    if contrast.in_turn[0, 0] and launches.in_turn is not None:
        launches = launches.in_turn
    if contrast.paired[0, 0]:
        shared = int((launches.is_measured[a] & launches.is_measured[b]).sum())
        fewest = shared + further
        unpooled_degrees = np.maximum(shared + further - 1, 0)
        gained = further
        shares = shared / (shared + further)
        pool = launches.paired_pool
    else:
        fewest = counts.min() + further
        unpooled_degrees = counts.sum() - 2 + 2 * further
        gained = 2 * further
        shares = _shares_after(counts, further)
        pool = launches.unpaired_pool
    # A pool is left for the points' own spread where these have launches enough.
    pooled = pooled_is_better(
        unpooled_degrees, pooled=launch_degrees_of(pool) + gained, launches=fewest
    )
    if contrast.pooled[0, 0]:
        degrees_after = np.where(pooled, degrees + gained, unpooled_degrees)
    else:
        degrees_after = degrees + gained
    degrees_after[0] = degrees
    return shares, degrees_after


def _shares_after(counts: Any, further: Any) -> Numbers:
    """Remaining share of the variance of a difference of means after more launches of both.

    Args:
        counts: (2,) present launches.
        further: (numbers,) more launches of each.
    """
    after = (1 / np.add.outer(counts, further)).sum(axis=0)
    shares: Numbers = after / (1 / np.asarray(counts)).sum()
    return shares


def _enough(
    estimate: float, needed: Numbers, *, lasting: float = 0.0
) -> tuple[int | None, Reason | None]:
    """Give the number of further launches that detect an effect, or the reason why it is None.

    Args:
        estimate: of the effect.
        needed: smallest detectable logarithms of ratios with 0, 1, 2 … `MOST_LAUNCHES` more.
        lasting: drift that further launches have too.
    """
    if lasting and abs(estimate) <= lasting:
        return (None, Reason.WITHIN_DRIFT)
    sufficient = (abs(estimate) > needed[1:] + lasting).nonzero()[0]
    if len(sufficient):
        return (int(sufficient[0]) + 1, None)
    return (None, Reason.OVER_100_LAUNCHES)


def detectable(
    errors: Any, degrees: Any, *, error_degrees: Any = None, level: float = 0.05
) -> Numbers:
    """Give the true difference that a t test detects with probability `POWER`.

    Args:
        errors: standard errors of the difference, or of what it will be.
        degrees: of freedom that the test has.
        error_degrees: degrees of freedom of the present errors; those of the test by default.
        level: two-sided significance level of the test.
    """
    from scipy.special import chdtri

    if error_degrees is None:
        error_degrees = degrees
    free = np.minimum(np.asarray(error_degrees, dtype=np.float64), _MANY_DEGREES)
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
