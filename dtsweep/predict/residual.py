"""Gaussian process of the residual: covariances of compute, of the exchange, and of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtsweep.predict.setups import Flags, Numbers, Setups

_BETWEEN_OUTPUTS = 0.7
"""Correlation of a configuration's rest: of its step time, and of its pass time."""

_SIZES = ("micro_batch", "workers", "nodes", "per_node", "accumulation", "period", "is_multi_node")
"""First axes; user settings follow."""

_OF_COMPUTE = {"micro_batch", "per_node"}
"""Sizes on which the residual of compute depends."""

_OF_EXCHANGE = {"workers", "nodes", "per_node", "is_multi_node"}
"""Sizes on which the residual of the exchange depends."""

_LENGTH_PRIOR = (np.log(2.0), 0.7)
"""Mean and standard deviation of the logarithm of a length scale."""

SMOOTH = ("compute", "exchange", "rest")
"""Parts of the residual that near configurations share."""

SEPARATE = ("world", "own", "launch")
"""Parts without neighbours: of workers and nodes, of a configuration, of a launch."""

_STRENGTH_PRIORS = {
    "compute": (np.log(0.03), 0.7),
    "exchange": (np.log(0.15), 0.7),
    "rest": (np.log(0.03), 0.7),
    "world": (np.log(0.12), 0.7),
    "own": (np.log(0.02), 0.5),
    "launch": (np.log(0.02), 0.5),
}
"""Mean and standard deviation of the logarithm of each part's standard deviation."""

_LARGEST = {"compute": 0.3, "exchange": 0.6, "world": 0.6}
"""Largest standard deviation of parts that a configuration takes by its slope.

The formula is linear in them. A part of e⁵ would be exact where the exchange is a small share of
the step, and would multiply the step time where it is a large one. What is left is the rest's,
which has a slope of 1.
"""

_MOST_CALLS = 40
"""Evaluations of the likelihood."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ResidualAxes:
    """Axes of the space in which near configurations have similar residuals."""

    categories: tuple[str, ...]
    """Settings without an order: 0 apart if equal, else 1."""

    numbers: tuple[str, ...]
    """Further settings that are numbers above 0."""

    @property
    def parts(self) -> NDArray[np.bool_]:
        """(smooth parts, axes) True if a part depends on an axis."""
        users = [True] * (len(self.categories) + len(self.numbers))
        compute = [name in _OF_COMPUTE for name in _SIZES] + users
        exchange = [name in _OF_EXCHANGE for name in _SIZES] + users
        return np.array([compute, exchange, np.ones(len(compute), dtype=np.bool_)])

    def squares(self, one: Setups, other: Setups) -> Numbers:
        """Squared distances along each axis: (axes, n, m)."""
        parts = [
            (left[:, None] - right[None, :]) ** 2
            for left, right in zip(self._numbers(one), self._numbers(other), strict=True)
        ]
        for name in self.categories:
            left, right = (some.categories[name].astype(str) for some in (one, other))
            parts.append((left[:, None] != right[None, :]).astype(np.float64))
        return np.array(parts)

    def _numbers(self, setups: Setups) -> list[Numbers]:
        sizes = [setups.micro_batch, setups.workers, setups.nodes, setups.per_node]
        columns = [np.log2(size) for size in [*sizes, setups.accumulation, setups.period]]
        columns.append(np.where(setups.nodes > 1, 2.0, 0.0))
        return columns + [np.log2(setups.numbers[name]) for name in self.numbers]


@dataclass(frozen=True, kw_only=True, eq=False)
class Strengths:
    """Hyper-parameters of the residual."""

    lengths: Numbers
    """(axes,) distance over which residuals stop being similar."""

    of: dict[str, float]
    """Standard deviation of each part."""

    def variances(self, names: Sequence[str]) -> Numbers:
        """Variances of parts."""
        return np.array([self.of[name] ** 2 for name in names])


def matern(squares: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers]:
    """Matérn-5/2 correlation, and its slope by the squared distance, which is negative.

    Args:
        squares: (axes, n, m) squared distances.
        lengths: (axes,) length scales.

    Returns:
        Two (n, m) arrays.
    """
    square = 5 * np.tensordot(1 / lengths**2, squares, axes=1)
    distance = np.sqrt(square)
    decay = np.exp(-distance)
    return (1 + distance + square / 3) * decay, -5 / 6 * (1 + distance) * decay


def weights_between(one: Outputs, other: Outputs) -> Numbers:
    """Factors of each smooth part's covariance: (parts, n, m)."""
    is_equal = one.is_pass[:, None] == other.is_pass
    return np.array(
        [
            one.by_compute[:, None] * other.by_compute,
            one.by_exchange[:, None] * other.by_exchange,
            np.where(is_equal, 1.0, _BETWEEN_OUTPUTS),
        ]
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """Times that the residual is added to: n step times or pass times."""

    by_compute: Numbers
    """(n,) slope of the log time by log compute."""

    by_exchange: Numbers
    """(n,) slope of the log time by the log exchange."""

    is_pass: Flags
    """(n,) True for the time of a pass."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedFacts:
    """Facts about n rows of measurements that the likelihood needs again and again."""

    squares: Numbers
    """(axes, n, n) squared distances."""

    parts: Flags
    """(smooth parts, axes) True if a part depends on an axis."""

    row: NDArray[np.int64]
    """(observations,) row of each."""

    weights: Numbers
    """(smooth parts, observations, observations) factors of covariances."""

    separate: Numbers
    """(separate parts, observations, observations) covariances at strength 1."""

    fixed: Numbers
    """(observations, observations) covariance of parameters and of windows."""

    def covariance(self, strengths: Strengths) -> Numbers:
        """Covariance of all observations."""
        every = self.fixed + np.tensordot(strengths.variances(SEPARATE), self.separate, axes=1)
        pairs = np.ix_(self.row, self.row)
        variances = strengths.variances(SMOOTH)
        for part, mask in enumerate(self.parts):
            correlation, _ = matern(self.squares[mask], strengths.lengths[mask])
            every += variances[part] * self.weights[part] * correlation[pairs]
        return every


def is_one_world(squares: Numbers) -> Flags:
    """Mark pairs with equal workers and nodes: (n, m), from (axes, n, m) squared distances."""
    sizes = [_SIZES.index(name) for name in ("workers", "nodes")]
    worlds: Flags = np.all(squares[sizes] == 0, axis=0)
    return worlds


def fit_strengths(shared: SharedFacts, deviations: Numbers) -> Strengths:
    """Find the most probable hyper-parameters.

    Args:
        shared: of n rows.
        deviations: (observations,) of the logarithms from the prior mean.
    """
    from scipy.optimize import minimize

    axes = len(shared.squares)
    varies = np.flatnonzero(shared.squares.any(axis=(1, 2)))
    names = (*SMOOTH, *SEPARATE)
    priors = [_STRENGTH_PRIORS[name] for name in names]
    means, spreads = np.array([*[_LENGTH_PRIOR] * axes, *priors]).T
    limits = [_LARGEST.get(name, np.inf) for name in names]
    largest = np.log([*[np.inf] * axes, *limits])
    ends = np.array([means - 4 * spreads, np.minimum(means + 4 * spreads, largest)])
    free = np.concatenate([varies, axes + np.arange(len(priors))])

    def cost(logs: Numbers) -> tuple[float, Numbers]:
        every = means.copy()
        every[free] = logs
        value, slope = _misfit(every, shared, deviations)
        standard = (every - means) / spreads
        return value + 0.5 * float(standard @ standard), (slope + standard / spreads)[free]

    fit = minimize(
        cost,
        means[free],
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(*ends[:, free], strict=True)),
        options={"maxfun": _MOST_CALLS, "ftol": 1e-5},
    )
    every = means.copy()
    every[free] = fit.x
    return _strengths(every)


def _strengths(logs: Numbers) -> Strengths:
    names = (*SMOOTH, *SEPARATE)
    lengths = np.exp(logs[: -len(names)])
    values = np.exp(logs[-len(names) :]).tolist()
    return Strengths(lengths=lengths, of=dict(zip(names, values, strict=True)))


def _misfit(logs: Numbers, shared: SharedFacts, deviations: Numbers) -> tuple[float, Numbers]:
    """Negative log likelihood, and its slope by the logarithms of the hyper-parameters."""
    from scipy.linalg import cholesky

    strengths = _strengths(logs)
    factor = cholesky(shared.covariance(strengths), lower=True)
    inverse = inverse_of(factor)
    weights = inverse @ deviations
    value = 0.5 * float(deviations @ weights) + float(np.sum(np.log(np.diag(factor))))
    # by the covariance: ½ (C⁻¹ − w wᵀ)
    by_pair = 0.5 * (inverse - np.outer(weights, weights))
    rows = shared.squares.shape[1]
    membership = (shared.row[:, None] == np.arange(rows)).astype(np.float64)
    by_lengths = np.zeros(len(shared.squares))
    by_strengths = []
    for part, (mask, variance) in enumerate(
        zip(shared.parts, strengths.variances(SMOOTH), strict=True)
    ):
        # summed over the outputs of each row
        by_rows = variance * (membership.T @ (by_pair * shared.weights[part]) @ membership)
        lengths = strengths.lengths[mask]
        correlation, by_square = matern(shared.squares[mask], lengths)
        through = np.tensordot(shared.squares[mask], by_rows * by_square, axes=2)
        by_lengths[mask] -= 2 / lengths**2 * through
        by_strengths.append(2 * float(np.sum(by_rows * correlation)))
    separate = 2 * np.tensordot(shared.separate, by_pair, axes=2)
    separate *= strengths.variances(SEPARATE)
    return value, np.concatenate([by_lengths, by_strengths, separate])


def inverse_of(factor: Numbers) -> Numbers:
    """Invert a matrix by its lower Cholesky factor."""
    from scipy.linalg import lapack

    inverse, _ = lapack.dpotri(factor, lower=1)
    lower = np.tril(inverse)
    full: Numbers = lower + np.tril(lower, -1).T
    return full


def left_out(inverse: Numbers, deviations: Numbers, *, groups: Numbers, is_pass: Flags) -> Numbers:
    """Deviations of each step time from its prediction by other configurations, by its error.

    Args:
        inverse: of the covariance of observations.
        deviations: (observations,) from the prior mean.
        groups: (observations,) number of the configuration, which is left out as a whole.
        is_pass: (observations,) True for the times of passes.

    Returns:
        (step times,) standardised.
    """
    weights = inverse @ deviations
    standardised = []
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        spread = np.linalg.inv(inverse[np.ix_(members, members)])
        scores = spread @ weights[members] / np.sqrt(np.diag(spread))
        standardised.append(scores[~is_pass[members]])
    return np.concatenate(standardised)
