"""Differences between points: the test of `difference`, frontiers and recommendations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.inference.spread import POINT, Launches, launches_of
from dtsweep.inference.variance import (
    POOLED_FROM,
    Known,
    Numbers,
    Pool,
    moderated,
    pooled_is_better,
)
from dtsweep.inference.verdicts import Method
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Contrasts:
    """Differences between logarithms of launch means: of points (rows) to others (columns)."""

    estimate: Numbers
    """(points, others), nan where one of them was not measured."""
    half_width: Numbers
    """Half of its 95 % interval; nan where there is no test."""
    degrees: Numbers
    """Degrees of freedom of that interval's Student's t; nan where there is no test."""
    paired: NDArray[np.bool_]
    """True where the launches that measured both are compared one by one."""
    pooled: NDArray[np.bool_]
    """True where other points say something of the error."""

    @property
    def greater(self) -> NDArray[np.bool_]:
        """True where the first is greater as far as launches can tell."""
        return self.estimate > self.half_width

    @property
    def tested(self) -> NDArray[np.bool_]:
        """True where launches can tell anything."""
        return ~np.isnan(self.half_width)

    def method(self, row: int, column: int) -> Method:
        """Name how two were compared, as `difference` lists it."""
        if not self.tested[row, column]:
            return Method.NONE
        if self.paired[row, column]:
            if self.pooled[row, column]:
                return Method.PAIRED_POOLED
            return Method.PAIRED
        if self.pooled[row, column]:
            return Method.POOLED
        return Method.WELCH


def logarithms_of(trials: pd.DataFrame, of: str) -> Launches:
    """Arrange the logarithms of a measured column by point and launch.

    Args:
        trials: of one environment, as `measured` gives them.
        of: a column with a standard error within the launch.
    """
    logs = {"log": np.log(trials[of]), "log_error": trials[f"{of}_error"] / trials[of]}
    return launches_of(trials[[*POINT, "launch"]].assign(**logs), "log")


def contrasts(launches: Launches, first: Rows, second: Rows) -> Contrasts:
    """Compare points of one environment, each of the first with each of the second.

    Args:
        launches: logarithms of launch means.
        first: rows of `launches`.
        second: others, or the same.
    """
    # Points that share no launch have 0 / 0 in what is paired, and those with one launch in what is
    # not.
    with np.errstate(invalid="ignore", divide="ignore"):
        shared, by_launch = _by_launch(launches, first, second)
        by_mean = _by_mean(launches, first, second)
    fewest = np.minimum.outer(launches.counts[first], launches.counts[second])
    # One shared launch says something where others say how far its points differ.
    known = counted_of(launches.together) >= POOLED_FROM or counted_of(launches.apart) < POOLED_FROM
    paired = (shared > 1) | ((shared == 1) & (fewest == 1) & known)
    estimate, half_width, degrees, pooled = (
        np.where(paired, *each) for each in zip(by_launch, by_mean, strict=True)
    )
    return Contrasts(
        estimate=estimate, half_width=half_width, degrees=degrees, paired=paired, pooled=pooled == 1
    )


def _by_launch(
    launches: Launches, first: Rows, second: Rows
) -> tuple[Numbers, tuple[Numbers, ...]]:
    """Number of launches that measured both, the estimate, and its `half_width_of`."""
    # A launch of one point pairs it with nothing.
    columns = launches.there.sum(axis=0) > 1
    ours, theirs = (
        launches.there[points][:, columns].astype("float64") for points in (first, second)
    )
    left, right = (launches.left[points][:, columns] for points in (first, second))
    shared: Numbers = ours @ theirs.T
    shift = (left @ theirs.T - ours @ right.T) / shared
    squares = left**2 @ theirs.T + ours @ (right**2).T - 2 * left @ right.T
    known = half_width_of(
        launches.together,
        Known(np.maximum(squares / shared - shift**2, 0) / (shared - 1), np.maximum(shared - 1, 0)),
        pooled=pooled_is_better(shared - 1, pooled=counted_of(launches.together), launches=shared),
        within=launches.within,
        total=lambda each: np.add.outer(each[first], each[second]) / shared,
    )
    estimate = np.subtract.outer(launches.centres[first], launches.centres[second]) + shift
    return shared, (estimate, *known)


def _by_mean(launches: Launches, first: Rows, second: Rows) -> tuple[Numbers, ...]:
    """Estimate and its half-width by `half_width_of`, from all launches of each as independent."""
    counts = launches.counts
    variances = launches.squares / (counts - 1) / counts
    parts = np.add.outer(*((variances**2 / (counts - 1))[points] for points in (first, second)))
    sums = np.add.outer(variances[first], variances[second])
    fewest = np.minimum.outer(counts[first], counts[second])
    free = np.where(fewest > 1, np.add.outer(counts[first], counts[second]) - 2, 0)
    welch = np.where(parts > 0, sums**2 / parts, free)
    known = half_width_of(
        launches.apart,
        Known(sums, np.where(fewest > 1, welch, 0)),
        pooled=pooled_is_better(free, pooled=counted_of(launches.apart), launches=fewest),
        within=launches.within,
        total=lambda each: np.add.outer((each / counts)[first], (each / counts)[second]),
    )
    estimate: Numbers = np.subtract.outer(launches.centres[first], launches.centres[second])
    return estimate, *known


def counted_of(pool: Pool | None) -> int:
    """Degrees of freedom by the number of launches; 0 without a pool."""
    if not pool:
        return 0
    return pool.counted


def half_width_of(
    pool: Pool | None,
    own: Known,
    *,
    pooled: NDArray[np.bool_],
    within: Numbers,
    total: Callable[[Numbers], Numbers],
) -> tuple[Numbers, Numbers, Numbers]:
    """Half of the 95 % interval of estimates, its degrees of freedom, and 1 where it is pooled.

    Args:
        pool: of the environment.
        own: variances of the estimates by their own launches.
        pooled: where the pool has enough degrees of freedom.
        within: (points,) variance within a launch.
        total: variance of the estimates, from one per launch of each point.
    """
    known = own
    if pool:
        expected = total(pool.variances(within))
        said = total(within)
        pooled = pooled & ~np.isnan(said)
        both = moderated(pool, expected, weight=total(np.ones_like(within)), within=said, own=own)
        known = Known(*(np.where(pooled, *each) for each in zip(both, own, strict=True)))
    degrees = np.where(known.degrees > 0, known.degrees, np.nan)
    return students_t(degrees) * known.variance**0.5, degrees, pooled.astype("float64")
