"""Variance of launch means: the error within windows, and the variance between launches, pooled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_UNPOOLED_FROM = 8
"""Launches from which on a point's own spread is used, whatever the pool says."""

_POOLED_FROM = 4
"""Degrees of freedom from which on the pool says something about a point with one launch."""

PRIOR_SIGMA, PRIOR_SIGMA_IN_TURN, PRIOR_DEGREES = 0.036, 0.01, 2
"""Standard deviation between launches, as a share, that is expected before launches show it.

A scaled inverse chi-square distribution of the variance with these degrees of freedom: of 95 % of
machines it is 1.9 to 23 %. It is the most likely one by nine sets of launches that this project
measured, with 0.9 to 19 %. Of points in turn it is what the cycles of a session don't explain:
eight sessions on a busy machine showed none (docs/log/2026-11-29.md).
"""

WITHIN_DEGREES = 6
"""Degrees of freedom of windows' standard errors, however many steps they have.

It stands for one common factor on all of them, with a relative standard deviation of 0.29.
"""

_UNLIKE_LEVEL = 0.2
"""Significance level of the test of `is_unlike`: a missed difference is worse than a false one."""

_LEAST = 1e-16
"""Smallest variance, for equal values whose windows report no error."""


class VarianceComponents(NamedTuple):
    """Pooled variance components of the launch means of one environment's points.

    The variance of a launch mean is the sum of two components. Its window gives the within-launch
    variance. The between-launch variance is common to all points. It may be below 0 if windows
    report too large an error. The sum is at least a quarter of the within-launch variance.
    """

    between_variance: float
    """Between-launch variance; of a paired pool, without the launch effects."""
    information: float
    """Twice the Fisher information of the between-launch variance, less where launches are shared.

    Times a squared variance it gives degrees of freedom, as by Satterthwaite.
    """
    within_variance: float
    """Within-launch variance: mean over the points, weighted as in the fit."""
    launch_degrees: int
    """Degrees of freedom by the design alone, as if all points were equally noisy."""
    ratios: Numbers
    """(points,) observed over fitted variance of each point; nan where it was not pooled."""
    point_degrees: Numbers
    """(points,) degrees of freedom of the observed ones; 0 where a point was not pooled.

    Fewer than launches less one where a point itself sets much of the launch effects.
    """
    own_degrees: Numbers
    """(points,) launches less one; 0 where a point was not pooled."""

    def with_prior(self, sigma: float | None) -> VarianceComponents | None:
        """Add what is known in general, where launches have under `_POOLED_FROM` degrees.

        Args:
            sigma: standard deviation between launches that is expected, with `PRIOR_DEGREES`.

        Returns:
            None where the launches know enough, or there is no prior.
        """
        if sigma is None or self.launch_degrees >= _POOLED_FROM:
            return None
        degrees = self.degrees + PRIOR_DEGREES
        between = self.degrees * self.between_variance + PRIOR_DEGREES * sigma**2
        between /= degrees
        variance = float(_variances(np.array(self.within_variance), between))
        return self._replace(
            between_variance=between,
            information=degrees / variance**2,
            launch_degrees=max(_POOLED_FROM, self.launch_degrees + PRIOR_DEGREES),
        )

    def of_all(self, is_pooled: NDArray[np.bool_]) -> VarianceComponents:
        """Number the pooled points as all points of the environment are.

        Args:
            is_pooled: (points,) True where a point is one of the pooled ones.
        """
        ratios = np.full(len(is_pooled), np.nan)
        ratios[is_pooled] = self.ratios
        point_degrees, own_degrees = np.zeros((2, len(is_pooled)))
        point_degrees[is_pooled] = self.point_degrees
        own_degrees[is_pooled] = self.own_degrees
        return self._replace(ratios=ratios, point_degrees=point_degrees, own_degrees=own_degrees)

    def is_unlike(self, *rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """True where launches of the points vary more than those of all other points.

        The largest of their variances is compared with the mean of the others (F test). Such
        points are tested by their own launches. A point that alone sets the launch effects is not
        tested: by its windows it is the quietest one.

        Args:
            rows: numbers of the first point, of the second, …; arrays that broadcast.
        """
        from scipy.special import fdtrc

        sums = np.nan_to_num(self.ratios) * self.point_degrees
        other_degrees = self.point_degrees.sum() - sum(self.point_degrees[row] for row in rows)
        with np.errstate(invalid="ignore", divide="ignore"):
            others = (sums.sum() - sum(sums[row] for row in rows)) / other_degrees
            p_values = [
                fdtrc(self.own_degrees[row], other_degrees, self.ratios[row] / others)
                for row in rows
            ]
        is_tested = [self.point_degrees[row] > self.own_degrees[row] / 4 for row in rows]
        p_values = [np.where(*pair, np.nan) for pair in zip(is_tested, p_values, strict=True)]
        tests = sum(tested.astype("int64") for tested in is_tested)
        # A point with one launch has no p-value.
        least = np.fmin.reduce(np.broadcast_arrays(1.0, *p_values))
        level = 1 - (1 - _UNLIKE_LEVEL) ** (1 / np.maximum(tests, 1))
        is_unlike: NDArray[np.bool_] = least < level
        return is_unlike

    def variances(self, within_variance: Numbers) -> Numbers:
        """Give the variance of one launch mean from its within-launch variance."""
        return _variances(within_variance, self.between_variance)

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the between-launch variance."""
        variance = float(_variances(np.array(self.within_variance), self.between_variance))
        return variance**2 * self.information


class VarianceEstimate(NamedTuple):
    """Variances and their degrees of freedom; arrays of one shape."""

    variance: Numbers
    degrees: Numbers


def pool_unpaired(
    residual_ss: Numbers, degrees: Numbers, within_variance: Numbers, *, launch_degrees: int
) -> VarianceComponents:
    """Pool the between-launch variance, including launch effects that all points share.

    Args:
        residual_ss: (points,) residual sum of squares of a point's launch means.
        degrees: (points,) launches less one.
        within_variance: (points,) variance within a launch.
        launch_degrees: degrees of freedom of all; fewer than the sum of `degrees` where launches
            are shared.
    """
    return _pooled(
        lambda _: (residual_ss, degrees),
        within_variance,
        own_degrees=degrees,
        launch_degrees=launch_degrees,
    )


def pool_paired(
    means: Numbers, within_variance: Numbers, *, launch_degrees: int
) -> VarianceComponents:
    """Pool the launch-by-point variance, after removing launch effects that all points share.

    Args:
        means: (points, launches) launch means, nan where there is none; two or more in each row and
            column.
        within_variance: (points,) variance within a launch.
        launch_degrees: degrees of freedom.
    """
    return _pooled(
        lambda variances: _two_way_residual_ss(means, variances),
        within_variance,
        own_degrees=(~np.isnan(means)).sum(axis=1) - 1.0,
        launch_degrees=launch_degrees,
    )


def moderated_variance(
    pool: VarianceComponents,
    expected: Numbers,
    *,
    weight: Numbers,
    within_variance: Numbers,
    unpooled: VarianceEstimate,
) -> VarianceEstimate:
    """Combine a pooled variance of an estimate with the residuals of the launches behind it.

    This is the moderated variance of Smyth (2004): the mean of both, weighted by degrees of
    freedom. The pooled variance has the pool's degrees of freedom. It has fewer where it rests on
    within-launch variances unlike those that the pool could check. The pool includes these
    residuals, so their degrees of freedom are subtracted from the pool's.

    Args:
        pool: of the environment.
        expected: variance of the estimate by the pool.
        weight: factor of the between-launch variance in `expected`.
        within_variance: part of `expected` that windows give.
        unpooled: variance of the estimate by its own residuals; 0 degrees where there are none.
    """
    informed = expected**2 * pool.information / weight**2
    unchecked = (within_variance - weight * pool.within_variance) ** 2 / (
        WITHIN_DEGREES * expected**2
    )
    prior = 1 / (1 / informed + unchecked)
    has_residuals = unpooled.degrees > 0
    prior = np.where(has_residuals, np.clip(informed - unpooled.degrees, 0, prior), prior)
    degrees = prior + unpooled.degrees
    weighted = np.where(has_residuals, unpooled.degrees * unpooled.variance, 0)
    return VarianceEstimate((prior * expected + weighted) / degrees, degrees)


def pooled_is_better(degrees: Any, *, pooled: Any, launches: Any) -> Any:
    """True where the pool has enough degrees of freedom.

    Depends on the number of launches only, never on measured values. With two or three launches
    Student's t is 12.7 or 4.3; twice as many degrees of freedom are worth the assumption that
    launches add equally to all points, until a point has enough launches of its own.

    Args:
        degrees: of freedom of the point's own spread, 0 for one launch; a number or an array, as
            the other arguments.
        pooled: degrees of freedom of the pool, by launches; 0 or nan where there is none.
        launches: of the point.
    """
    needed = np.where(np.asarray(degrees) > 0, 2 * np.asarray(degrees), _POOLED_FROM)
    return (np.asarray(launches) < _UNPOOLED_FROM) & (np.asarray(pooled) >= needed)


def _variances(within_variance: Numbers, between_variance: float) -> Numbers:
    variance = np.maximum(within_variance + between_variance, within_variance / 4)
    return np.maximum(variance, _LEAST)


def _pooled(
    residual_ss_of: Callable[[Numbers], tuple[Numbers, Numbers]],
    within_variance: Numbers,
    *,
    own_degrees: Numbers,
    launch_degrees: int,
) -> VarianceComponents:
    """Fit the between-launch variance by residual maximum likelihood.

    Points with small variances weigh most. `residual_ss_of` gives, for the points' variances, their
    residual sums of squares and degrees of freedom.
    """
    between_variance = 0.0
    for _ in range(100):
        variances = _variances(within_variance, between_variance)
        residual_ss, degrees = residual_ss_of(variances)
        weights = variances**-2
        excess = residual_ss - degrees * within_variance
        estimate = float((weights * excess).sum() / (weights * degrees).sum())
        if abs(estimate - between_variance) <= 1e-5 * variances.min():
            break
        # Half a step: a whole one can swing between two values.
        between_variance = (between_variance + estimate) / 2
    share = launch_degrees / float(degrees.sum())
    weights *= degrees
    return VarianceComponents(
        between_variance=between_variance,
        information=float(weights.sum()) * share,
        within_variance=float((weights * within_variance).sum() / weights.sum()),
        launch_degrees=launch_degrees,
        ratios=residual_ss / degrees / variances,
        point_degrees=degrees,
        own_degrees=own_degrees,
    )


def _two_way_residual_ss(means: Numbers, variances: Numbers) -> tuple[Numbers, Numbers]:
    """Residual sums of squares and degrees of freedom by point, without point and launch effects.

    Args:
        means: (points, launches) launch means, nan where there is none.
        variances: (points,) of a launch mean.
    """
    is_measured = ~np.isnan(means)
    counts = is_measured.sum(axis=1, keepdims=True)
    weights = is_measured / variances[:, None]
    residuals = np.where(is_measured, means, 0.0)
    for _ in range(50):
        point_effects = residuals.sum(axis=1, keepdims=True) / counts
        residuals = np.where(is_measured, residuals - point_effects, 0.0)
        launch_effects = (weights * residuals).sum(axis=0) / weights.sum(axis=0)
        residuals = np.where(is_measured, residuals - launch_effects, 0.0)
        if np.abs(launch_effects).max() < 1e-9:
            break
    leverage = weights / weights.sum(axis=0)
    degrees = np.where(is_measured, 1 - leverage, 0.0).sum(axis=1)
    degrees = degrees * (1 - 1 / counts[:, 0])
    # A point so quiet that it alone sets the launch effects has almost none.
    return (residuals**2).sum(axis=1), np.maximum(degrees, 1e-6)
