"""Differences between points: the test of `difference`, frontiers and recommendations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.inference.spread import POINT, Launches, launches_of
from dtsweep.inference.turns import with_turns
from dtsweep.inference.variance import (
    Numbers,
    VarianceComponents,
    VarianceEstimate,
    moderated_variance,
    pooled_is_better,
)
from dtsweep.inference.verdicts import Method
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.intp]

_VALUES = ("estimate", "half_width", "degrees", "paired", "pooled", "launches", "assumed_sigma")


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrasts:
    """Differences of logarithms of launch means: first points (rows) less second ones (columns)."""

    estimate: Numbers
    """(first, second), nan where one of the two points was not measured."""
    half_width: Numbers
    """Half-width of the 95 % interval of the estimate; nan where there is no test."""
    degrees: Numbers
    """Degrees of freedom of that interval's Student's t; nan where there is no test."""
    paired: NDArray[np.bool_]
    """True where the launches that measured both are compared one by one."""
    pooled: NDArray[np.bool_]
    """True where the pooled variance is part of the standard error."""
    launches: Numbers
    """Launches of each of the two points, at least; where they are paired, of both."""
    assumed_sigma: Numbers
    """`Launches.prior_sigma`, where it narrows the interval; else nan."""
    in_turn: NDArray[np.bool_]
    """True where the sessions that measured both in turn are compared, and no others."""

    @property
    def error(self) -> Numbers:
        """Standard error of the estimate; nan where there is no test."""
        error: Numbers = self.half_width / students_t(self.degrees)
        return error

    def half_width_at(self, level: float) -> Numbers:
        """Half-width of the intervals of confidence 1 - level, two-sided."""
        half_width: Numbers = students_t(self.degrees, level=level) * self.error
        return half_width

    @property
    def tested(self) -> NDArray[np.bool_]:
        """True where there is a test."""
        return ~np.isnan(self.half_width)

    def method(self, row: int, column: int) -> Method:
        """Name the method that compared two points, as `difference` lists it."""
        if not self.tested[row, column]:
            return Method.NONE
        if self.in_turn[row, column]:
            return Method.IN_TURN
        if self.paired[row, column]:
            if self.pooled[row, column]:
                return Method.PAIRED_POOLED
            return Method.PAIRED
        if self.pooled[row, column]:
            return Method.POOLED
        return Method.WELCH


def logarithms_of(trials: pd.DataFrame, of: str, *, in_turn: bool = True) -> Launches:
    """Arrange the logarithms of a measured column by point and launch.

    Args:
        trials: of one environment, as `measured` gives them.
        of: a column with a standard error within the launch.
        in_turn: take the levels under equal conditions of points that were measured in turn, which
            tell how far points differ, and not the means of their own windows.
    """
    logs = {"value": np.log(trials[of]), "value_error": trials[f"{of}_error"] / trials[of]}
    columns = trials[[*POINT, "launch"]].assign(**logs)
    if in_turn:
        columns = with_turns(columns, trials, of)
    return launches_of(columns, "value", has_prior=True)


def contrasts(
    launches: Launches, first: Rows, second: Rows, *, assumes_equal: bool = False
) -> Contrasts:
    """Compare points of one environment, each of the first with each of the second.

    Two points that sessions measured in turn are compared by these alone: other launches saw them
    at different times, and drift between these would spoil the ratio. What one such session may
    have favoured is known in general (`PRIOR_SIGMA_IN_TURN`).

    Args:
        launches: logarithms of launch means.
        first: rows of `launches`.
        second: rows of `launches`, which may be the same.
        assumes_equal: use the pooled variance also for points whose launches vary more than those
            of the others, as a fit to all points needs it.
    """
    # Others are compared by whole windows: turns met other minutes.
    whole = launches.whole or launches
    # Pairs without a shared launch give 0 / 0 in the paired contrasts, and points with one launch
    # in the unpaired ones.
    with np.errstate(invalid="ignore", divide="ignore"):
        shared, is_one_enough, by_launch = _paired_contrasts(
            whole, first, second, assumes_equal=assumes_equal
        )
        by_mean = _unpaired_contrasts(whole, first, second, assumes_equal=assumes_equal)
    fewest = np.minimum.outer(whole.counts[first], whole.counts[second])
    paired = (shared > 1) | (is_one_enough & (fewest == 1))
    estimate, half_width, degrees, pooled, assumed_sigma = (
        np.where(paired, *arrays) for arrays in zip(by_launch, by_mean, strict=True)
    )
    counted = np.where(paired, shared, fewest)
    values = (estimate, half_width, degrees, paired, pooled == 1, counted, assumed_sigma)
    in_turn = np.zeros(estimate.shape, dtype=np.bool_)
    if launches.in_turn is not None:
        by_turns = contrasts(launches.in_turn, first, second, assumes_equal=assumes_equal)
        is_measured = launches.in_turn.is_measured.astype("int64")
        in_turn = is_measured[first] @ is_measured[second].T > 0
        values = tuple(
            np.where(in_turn, getattr(by_turns, name), value)
            for name, value in zip(_VALUES, values, strict=True)
        )
    return Contrasts(**dict(zip(_VALUES, values, strict=True)), in_turn=in_turn)


def _paired_contrasts(
    launches: Launches, first: Rows, second: Rows, *, assumes_equal: bool
) -> tuple[Numbers, NDArray[np.bool_], tuple[Numbers, ...]]:
    """Contrasts launch by launch.

    Returns:
        The number of launches that measured both points; whether there is one, and others say how
        far its points differ; the estimate and its `_narrower` interval.
    """
    # A launch of one point pairs it with nothing.
    columns = launches.is_measured.sum(axis=0) > 1
    first_measured, second_measured = (
        launches.is_measured[points][:, columns].astype("float64") for points in (first, second)
    )
    first_residuals, second_residuals = (
        launches.residuals[points][:, columns] for points in (first, second)
    )
    shared: Numbers = first_measured @ second_measured.T
    shift = (first_residuals @ second_measured.T - first_measured @ second_residuals.T) / shared
    squares = (
        first_residuals**2 @ second_measured.T
        + first_measured @ (second_residuals**2).T
        - 2 * first_residuals @ second_residuals.T
    )
    variance = np.maximum(squares / shared - shift**2, 0) / (shared - 1)

    def intervals_by(pool: VarianceComponents | None) -> tuple[Numbers, ...]:
        pooled = pooled_is_better(shared - 1, pooled=launch_degrees_of(pool), launches=shared)
        if not assumes_equal:
            pooled &= ~_unlike_pairs(pool, first, second, among=pooled)
        return half_width_of(
            pool,
            VarianceEstimate(variance, np.maximum(shared - 1, 0)),
            pooled=pooled,
            within_variance=launches.windows_variance,
            total=lambda variances: np.add.outer(variances[first], variances[second]) / shared,
        )

    intervals = _narrower(intervals_by, launches.paired_pool, launches)
    means = launches.point_means
    estimate = np.subtract.outer(means[first], means[second]) + shift
    return shared, (shared == 1) & (intervals[2] == 1), (estimate, *intervals)


def _unpaired_contrasts(
    launches: Launches, first: Rows, second: Rows, *, assumes_equal: bool
) -> tuple[Numbers, ...]:
    """Estimate and its `_narrower` interval, from all launches of both points as independent."""
    counts = launches.counts
    variances = launches.residual_ss / (counts - 1) / counts
    shares = variances**2 / (counts - 1)
    parts = np.add.outer(shares[first], shares[second])
    sums = np.add.outer(variances[first], variances[second])
    fewest = np.minimum.outer(counts[first], counts[second])
    both = np.add.outer(counts[first], counts[second])
    degrees = np.where(fewest > 1, both - 2, 0)
    welch_degrees = np.where(parts > 0, sums**2 / parts, degrees)

    def total(variances: Numbers) -> Numbers:
        sums: Numbers = np.add.outer((variances / counts)[first], (variances / counts)[second])
        return sums

    def intervals_by(pool: VarianceComponents | None) -> tuple[Numbers, ...]:
        pooled = pooled_is_better(degrees, pooled=launch_degrees_of(pool), launches=fewest)
        unpooled = VarianceEstimate(sums, np.where(fewest > 1, welch_degrees, 0))
        if not assumes_equal:
            unlike = _unlike_pairs(pool, first, second, among=pooled)
            pooled &= ~unlike
            # A point with one launch gets the variance of the other point of the pair.
            is_single = unlike & (fewest == 1)
            of_a_launch = np.add.outer(launches.residual_ss[first], launches.residual_ss[second])
            of_a_launch = of_a_launch / (both - 2.0)
            variance = of_a_launch * np.add.outer(1 / counts[first], 1 / counts[second])
            unpooled = VarianceEstimate(
                np.where(is_single, variance, unpooled.variance),
                np.where(is_single, both - 2.0, unpooled.degrees),
            )
        return half_width_of(
            pool,
            unpooled,
            pooled=pooled,
            within_variance=launches.windows_variance,
            total=total,
        )

    intervals = _narrower(intervals_by, launches.unpaired_pool, launches)
    means = launches.point_means
    estimate: Numbers = np.subtract.outer(means[first], means[second])
    return estimate, *intervals


def _narrower(
    intervals_by: Callable[[VarianceComponents | None], tuple[Numbers, ...]],
    pool: VarianceComponents | None,
    launches: Launches,
) -> tuple[Numbers, ...]:
    """Intervals by a pool, or by it and the prior: what is known in general only bounds them.

    Launches of a quiet machine show less noise than the prior expects.

    Returns:
        `half_width_of`, and the prior's standard deviation where it is the narrower one, else nan.
    """
    intervals = intervals_by(pool)
    sigma = launches.prior_sigma
    prior = pool.with_prior(sigma) if pool else launches.prior_pool
    if prior is None or sigma is None:
        return *intervals, np.full_like(intervals[0], np.nan)
    bounded = intervals_by(prior)
    is_narrower = ~(bounded[0] >= intervals[0]) & ~np.isnan(bounded[0])
    narrower = (np.where(is_narrower, *pair) for pair in zip(bounded, intervals, strict=True))
    return *narrower, np.where(is_narrower, sigma, np.nan)


def _unlike_pairs(
    pool: VarianceComponents | None, first: Rows, second: Rows, *, among: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """(first, second) `VarianceComponents.is_unlike` of the pairs among some; False elsewhere."""
    unlike = np.zeros(among.shape, dtype=np.bool_)
    if pool:
        rows, columns = np.nonzero(among)
        unlike[rows, columns] = pool.is_unlike(first[rows], second[columns])
    return unlike


def launch_degrees_of(pool: VarianceComponents | None) -> int:
    """Degrees of freedom by the number of launches; 0 without a pool."""
    if not pool:
        return 0
    return pool.launch_degrees


def half_width_of(
    pool: VarianceComponents | None,
    unpooled: VarianceEstimate,
    *,
    pooled: NDArray[np.bool_],
    within_variance: Numbers,
    total: Callable[[Numbers], Numbers],
) -> tuple[Numbers, Numbers, Numbers]:
    """Half of the 95 % interval of estimates, its degrees of freedom, and 1 where it is pooled.

    Args:
        pool: of the environment.
        unpooled: variances of the estimates by their own launches.
        pooled: where the pool has enough degrees of freedom.
        within_variance: (points,) variance within a launch.
        total: variance of the estimates, from one per launch of each point.
    """
    estimates = unpooled
    if pool:
        within_total = total(within_variance)
        pooled = pooled & ~np.isnan(within_total)
        moderated = moderated_variance(
            pool,
            total(pool.variances(within_variance)),
            weight=total(np.ones_like(within_variance)),
            within_variance=within_total,
            unpooled=unpooled,
        )
        estimates = VarianceEstimate(
            *(np.where(pooled, *arrays) for arrays in zip(moderated, unpooled, strict=True))
        )
    degrees = np.where(estimates.degrees > 0, estimates.degrees, np.nan)
    return students_t(degrees) * estimates.variance**0.5, degrees, pooled.astype("float64")
