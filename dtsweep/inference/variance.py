"""Variance of launch means: the error within windows, and the variance between launches, pooled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

OWN_FROM = 8
"""Launches from which on a point's own spread is taken, whatever the sweep knows of the others."""

POOLED_FROM = 4
"""Degrees of freedom from which on the pool says something about a point with one launch."""

WITHIN_DEGREES = 6
"""Degrees of freedom of windows' standard errors, however many steps they have.

All of them may be off by a third.
"""

_ALIKE = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 1e6])
"""Degrees of freedom that are tried for how far the points' variances agree with the pool.

The last is "as one".
"""

_LEAST = 1e-16
"""Of a variance, where values are equal and windows say that they have no error."""


class Pool(NamedTuple):
    """Pooled variance components of the launch means of one environment's points.

    A launch mean of a point varies by what its window says (`within`) and by what launches add,
    which all points have in common. `added` may be below 0, where windows say too much; a variance
    is at least a quarter of `within`.
    """

    added: float
    """Variance that launches add to that within."""
    information: float
    """Degrees of freedom over the squared variance, summed over the points."""
    within: float
    """Mean variance within launches of the points that say most of `added`."""
    alike: float
    """Prior degrees of freedom of the pooled variance: few if the points' variances disagree."""
    scale: float
    """Of the variances, where the points disagree: the typical one, not the mean."""
    counted: int
    """Degrees of freedom by the number of launches.

    How the noise is divided over the points is not in it.
    """

    def variances(self, within: Numbers) -> Numbers:
        """Give the variance of one launch mean, from that within its launch."""
        return self.scale * _variances(within, self.added)

    @property
    def degrees(self) -> float:
        """Degrees of freedom that `added` is known with."""
        return min(
            self.alike, float(_variances(np.array(self.within), self.added)) ** 2 * self.information
        )


class Known(NamedTuple):
    """A variance and how well it is known; arrays of one shape."""

    variance: Numbers
    degrees: Numbers


def pooled_apart(squares: Numbers, degrees: Numbers, within: Numbers, *, counted: int) -> Pool:
    """Pool the whole variance between launches.

    Args:
        squares: (points,) sum of the squared distances of a point's launch means from their mean.
        degrees: (points,) launches less one.
        within: (points,) variance within a launch.
        counted: degrees of freedom of all; fewer than the sum of `degrees` where launches are
            shared.
    """
    return _pooled(lambda _: (squares, degrees), within, counted=counted)


def pooled_together(values: Numbers, within: Numbers, *, counted: int) -> Pool:
    """Pool what launches add to a point beyond what they add to all points that they measured.

    Args:
        values: (points, launches) launch means, nan where there is none; two or more in each row
            and column.
        within: (points,) variance within a launch.
        counted: degrees of freedom.
    """
    return _pooled(lambda variances: _beside_launches(values, variances), within, counted=counted)


def moderated(
    pool: Pool, expected: Numbers, *, weight: Numbers, within: Numbers, own: Known
) -> Known:
    """Combine a pooled variance of an estimate with the residuals of the launches behind it.

    That is the moderated variance of Smyth (2004): the mean of both by degrees of freedom. The
    expected one has as many as the pool knows it with; less where it rests on what windows say
    beyond what the pool could check of that, or where the points disagree. The pool holds these
    residuals too, so they are not counted twice.

    Args:
        pool: of the environment.
        expected: variance of the estimate by the pool.
        weight: how often `added` is in `expected`.
        within: how much of `expected` windows say.
        own: variance of the estimate by its own residuals; 0 degrees where there are none.
    """
    # By the scaled variance: where the points disagree, the pool knows less of the small ones than
    # of their mean.
    informed = expected**2 * pool.information / weight**2
    unchecked = (within - weight * pool.within) ** 2 / (WITHIN_DEGREES * expected**2)
    prior = np.minimum(1 / (1 / informed + unchecked), pool.alike)
    has_own = own.degrees > 0
    prior = np.where(has_own, np.clip(informed - own.degrees, 0, prior), prior)
    degrees = prior + own.degrees
    return Known(
        (prior * expected + np.where(has_own, own.degrees * own.variance, 0)) / degrees, degrees
    )


def pooled_is_better(degrees: Any, *, pooled: Any, launches: Any) -> Any:
    """True where the pool has enough degrees of freedom.

    Depends on the number of launches only, never on measured values. With two or three launches
    Student's t is 12.7 or 4.3; twice as many degrees of freedom are worth the assumption that
    launches add equally to all points, until a point has launches enough of its own.

    Args:
        degrees: of freedom of the point's own spread, 0 for one launch; a number or an array, as
            the others.
        pooled: degrees of freedom of the pool, by launches; 0 or nan where there is none.
        launches: of the point.
    """
    needed = np.where(np.asarray(degrees) > 0, 2 * np.asarray(degrees), POOLED_FROM)
    return (np.asarray(launches) < OWN_FROM) & (np.asarray(pooled) >= needed)


def _variances(within: Numbers, added: float) -> Numbers:
    return np.maximum(np.maximum(within + added, within / 4), _LEAST)


def _pooled(
    residuals: Callable[[Numbers], tuple[Numbers, Numbers]], within: Numbers, *, counted: int
) -> Pool:
    """Fit `added` by residual maximum likelihood: points that are known well say most of it."""
    added = 0.0
    for _ in range(100):
        variances = _variances(within, added)
        squares, degrees = residuals(variances)
        weights = variances**-2
        found = float((weights * (squares - degrees * within)).sum() / (weights * degrees).sum())
        if abs(found - added) <= 1e-5 * variances.min():
            break
        # Half of the way: the whole one can swing between two values.
        added = (added + found) / 2
    share = counted / float(degrees.sum())
    alike, scale = _agreement(squares / degrees / variances, degrees, share=share)
    weights *= degrees
    mean_within = float((weights * within).sum() / weights.sum())
    return Pool(added, float(weights.sum()) * share, mean_within, alike, scale, counted)


def _beside_launches(values: Numbers, variances: Numbers) -> tuple[Numbers, Numbers]:
    """Sums of squares and degrees of freedom by point, without effects of points and launches."""
    there = ~np.isnan(values)
    launches = there.sum(axis=1, keepdims=True)
    weights = there / variances[:, None]
    left = np.where(there, values, 0.0)
    for _ in range(50):
        left = np.where(there, left - left.sum(axis=1, keepdims=True) / launches, 0.0)
        levels = (weights * left).sum(axis=0) / weights.sum(axis=0)
        left = np.where(there, left - levels, 0.0)
        if np.abs(levels).max() < 1e-9:
            break
    free = np.where(there, 1 - weights / weights.sum(axis=0), 0.0).sum(axis=1) * (
        1 - 1 / launches[:, 0]
    )
    # A point so quiet that it alone sets the levels has next to none.
    return (left**2).sum(axis=1), np.maximum(free, 1e-6)


def _agreement(ratios: Numbers, degrees: Numbers, *, share: float) -> tuple[float, float]:
    """Agreement of variances with their expectation: (its degrees of freedom, scale).

    The ratios of found to expected variances follow a scaled F distribution (Smyth 2004, here by
    maximum likelihood); infinitely many degrees unless fewer make the ratios likelier by Akaike's
    criterion.
    """
    from scipy.special import gammaln

    z = np.maximum(ratios, 1e-9)
    d = degrees
    f = _ALIKE[:, None]
    scales = np.ones(f.shape)
    for _ in range(15):
        parts = d * (d + f) / (f + d * z / scales) * z / scales
        scales *= parts.sum(axis=1, keepdims=True) / d.sum()
    log_likelihoods = (
        gammaln((d + f) / 2)
        - gammaln(d / 2)
        - gammaln(f / 2)
        + d / 2 * np.log(d / f * z / scales)
        - (d + f) / 2 * np.log1p(d * z / scales / f)
    ).sum(axis=1) * share
    best = int(log_likelihoods.argmax())
    if log_likelihoods[best] <= log_likelihoods[-1] + 1:
        return float("inf"), float(scales[-1, 0])
    return float(_ALIKE[best]), float(scales[best, 0])
