"""Gaussian process of the residual: covariances, and how strong they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtsweep.model.setups import Flags, Numbers, Setups

BETWEEN_OUTPUTS = 0.7
"""Correlation of a configuration's residuals: of its step time, and of its pass time."""

LENGTH_PRIOR = (np.log(2.0), 0.7)
"""Mean and standard deviation of the logarithm of a length scale."""

STRENGTH_PRIORS = ((np.log(0.06), 0.7), (np.log(0.02), 0.5), (np.log(0.02), 0.5))
"""Mean and standard deviation of the logarithm of a strength: smooth, configuration, launch."""

MOST_CALLS = 40
"""Evaluations of the likelihood."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Axes:
    """Axes of the space in which near configurations have similar residuals."""

    categories: tuple[str, ...]
    """Settings without an order: 0 apart if equal, else 1."""

    numbers: tuple[tuple[str, float], ...]
    """Further settings that are numbers, and the spread of each, or 0 for a logarithmic axis."""

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
        per_node = np.ceil(setups.workers / setups.nodes)
        sizes = [setups.micro_batch, setups.workers, setups.nodes, per_node]
        columns = [np.log2(size) for size in [*sizes, setups.accumulation, setups.period]]
        columns.append(np.where(setups.nodes > 1, 2.0, 0.0))
        for name, spread in self.numbers:
            values = setups.numbers[name]
            if spread:
                columns.append(2 * values / spread)
            else:
                columns.append(np.log2(np.maximum(values, np.finfo(float).tiny)))
        return columns


def axes_of(setups: Setups) -> Axes:
    """List the axes of measured configurations."""
    numbers = []
    for name, values in setups.numbers.items():
        spread = float(np.std(values)) or 1.0
        numbers.append((name, 0.0 if np.min(values) > 0 else spread))
    return Axes(categories=tuple(setups.categories), numbers=tuple(numbers))


@dataclass(frozen=True, kw_only=True, eq=False)
class Strengths:
    """Hyper-parameters of the residual."""

    lengths: Numbers
    """(axes,) distance at which residuals become unlike each other."""

    smooth: float
    """Standard deviation of what near configurations share."""

    own: float
    """Standard deviation of what each configuration has of its own."""

    launch: float
    """Standard deviation of what each launch adds."""


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Shared:
    """Facts about n rows of measurements that the likelihood needs again and again."""

    squares: Numbers
    """(axes, n, n) squared distances."""

    is_equal: Flags
    """(n, n) True where two rows measured one configuration."""

    is_one_launch: Flags
    """(n, n) True where two rows come from one launch."""

    fixed: Numbers
    """(observations, observations) covariance of parameters and of windows."""

    row: NDArray[np.int64]
    """(observations,) row of each."""

    is_pass: Flags
    """(observations,) True for the time of a pass."""

    @property
    def between(self) -> Numbers:
        """(observations, observations) correlation of two outputs of one configuration."""
        return np.where(self.is_pass[:, None] == self.is_pass, 1.0, BETWEEN_OUTPUTS)

    def covariance(self, strengths: Strengths) -> Numbers:
        """Covariance of all observations."""
        smooth, _ = matern(self.squares, strengths.lengths)
        rows = (
            strengths.smooth**2 * smooth
            + strengths.own**2 * self.is_equal
            + strengths.launch**2 * self.is_one_launch
        )
        every: Numbers = self.fixed + self.between * rows[np.ix_(self.row, self.row)]
        return every


def fit_strengths(shared: Shared, deviations: Numbers) -> Strengths:
    """Find the most probable hyper-parameters.

    Args:
        shared: of n rows.
        deviations: (observations,) of the logarithms from the prior mean.
    """
    from scipy.optimize import minimize

    axes = len(shared.squares)
    varies = np.flatnonzero(shared.squares.any(axis=(1, 2)))
    means, spreads = np.array([*[LENGTH_PRIOR] * axes, *STRENGTH_PRIORS]).T
    free = np.concatenate([varies, axes + np.arange(3)])

    def cost(logs: Numbers) -> tuple[float, Numbers]:
        every = means.copy()
        every[free] = logs
        value, slope = _misfit(every, shared, deviations)
        standard = (every - means) / spreads
        return value + 0.5 * float(standard @ standard), (slope + standard / spreads)[free]

    bounds = list(zip((means - 4 * spreads)[free], (means + 4 * spreads)[free], strict=True))
    fit = minimize(
        cost,
        means[free],
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxfun": MOST_CALLS, "ftol": 1e-5},
    )
    means[free] = fit.x
    return _strengths(means)


def _strengths(logs: Numbers) -> Strengths:
    smooth, own, launch = (float(value) for value in np.exp(logs[-3:]))
    return Strengths(lengths=np.exp(logs[:-3]), smooth=smooth, own=own, launch=launch)


def _misfit(logs: Numbers, shared: Shared, deviations: Numbers) -> tuple[float, Numbers]:
    """Negative log likelihood, and its slope by the logarithms of the hyper-parameters."""
    from scipy.linalg import cholesky

    strengths = _strengths(logs)
    factor = cholesky(shared.covariance(strengths), lower=True)
    inverse = inverse_of(factor)
    weights = inverse @ deviations
    value = 0.5 * float(deviations @ weights) + float(np.sum(np.log(np.diag(factor))))
    # by the covariance of rows: ½ (C⁻¹ − w wᵀ), summed over the outputs of each row
    by_pair = 0.5 * (inverse - np.outer(weights, weights)) * shared.between
    membership = (shared.row[:, None] == np.arange(len(shared.is_equal))).astype(np.float64)
    by_rows = membership.T @ by_pair @ membership
    smooth, by_square = matern(shared.squares, strengths.lengths)
    through = by_rows * by_square * strengths.smooth**2
    by_lengths = np.tensordot(shared.squares, through, axes=2) * -2 / strengths.lengths**2
    by_strengths = [
        2 * strengths.smooth**2 * float(np.sum(by_rows * smooth)),
        2 * strengths.own**2 * float(np.sum(by_rows * shared.is_equal)),
        2 * strengths.launch**2 * float(np.sum(by_rows * shared.is_one_launch)),
    ]
    return value, np.concatenate([by_lengths, by_strengths])


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
