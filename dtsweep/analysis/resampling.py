"""Resampled means: the probability of each point to be on the frontier, and its knee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.dominance import PointCosts, Rows
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.pareto import knee_of, on_frontier
from dtsweep.inference.variance import Numbers

_DRAWS = 2000


class FrontierProbability(NamedTuple):
    """Probability that a point is on the frontier, and is its knee, with all means drawn again."""

    frontier: Numbers
    knee: Numbers


def probabilities(costs: PointCosts, numbers: Rows, near: Rows) -> FrontierProbability:
    """Probability of each point to be on the frontier, and its knee; nan where an error is unknown.

    A point far off the frontier is off in every draw, and changes no other point's draws.

    Args:
        costs: of the environment.
        numbers: rows of points in it.
        near: places in `numbers` of points that are not far off; none where nothing can be tested.
    """
    shares = FrontierProbability(*np.full((2, len(numbers)), 0.0 if len(near) else np.nan))
    if len(near) == 1 < len(numbers):
        shares.frontier[near] = 1.0
    elif len(near):
        shares.frontier[near], shares.knee[near] = _probability(costs, numbers[near])
        if np.isnan(shares.frontier[near]).all():
            shares.frontier[:] = shares.knee[:] = np.nan
    return shares


def _probability(costs: PointCosts, numbers: Rows) -> FrontierProbability:
    """As `probabilities`, for points near the frontier only."""
    contrasts = costs.excess(numbers, numbers)
    tested = np.logical_and.reduce([contrast.tested for contrast in contrasts])
    places = _tested_against_each_other(tested | np.eye(len(numbers), dtype=np.bool_))
    shares = FrontierProbability(*np.full((2, len(numbers)), np.nan))
    if len(places) > 1 or (len(numbers) == 1 and tested.all()):
        draws = _draws(costs, numbers[places], contrasts, places)
        shares.frontier[places], shares.knee[places] = _shares_of_draws(draws)
    return shares


def _tested_against_each_other(tested: NDArray[np.bool_]) -> Rows:
    """Leave out points with the fewest tests until all remaining pairs have one."""
    inside = np.ones(len(tested), dtype=np.bool_)
    counts = tested.sum(axis=1)
    while (counts[inside] < inside.sum()).any():
        least = np.where(inside, counts, len(counts) + 1).argmin()
        inside[least] = False
        counts = counts - tested[:, least]
    return inside.nonzero()[0]


def _draws(
    costs: PointCosts, numbers: Rows, contrasts: Sequence[Contrasts], places: Rows
) -> Numbers:
    """Draw the costs of points again, (draws, points, objectives), where all errors are known.

    Args:
        costs: of the environment.
        numbers: rows of points in it.
        contrasts: by objective, of these and further points.
        places: of these points in the contrasts.
    """
    off_diagonal = ~np.eye(len(places), dtype=np.bool_)
    cells = np.ix_(places, places)
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(len(contrasts), _DRAWS, len(places)))
    noise = np.tensordot(_mixture(costs), normal, axes=1)
    draws = np.empty((_DRAWS, len(places), len(contrasts)))
    for column, (contrast, cost) in enumerate(zip(contrasts, costs.costs, strict=True)):
        if cost.is_exact:
            draws[:, :, column] = cost.launches.point_means[numbers]
        else:
            # Differences to the mean of all: those to one point would depend on which one that is.
            root = _root(contrast.half_width[cells] * off_diagonal)
            draws[:, :, column] = contrast.estimate[cells].mean(axis=1) + noise[column] @ root
    return draws


def _shares_of_draws(draws: Numbers) -> FrontierProbability:
    """Share of the draws in which each point is on the frontier, and its knee."""
    frontier, knee = np.zeros((2, draws.shape[1]))
    for costs in draws:
        places = on_frontier(costs).nonzero()[0]
        frontier[places] += 1
        row = knee_of(costs[places])
        if row is not None:
            knee[places[row]] += 1
    return FrontierProbability(frontier / len(draws), knee / len(draws))


def _mixture(costs: PointCosts) -> Numbers:
    """Square root of the correlation matrix of a point's cost errors, from launches' deviations."""
    residuals = [np.nan_to_num(cost.launches.residuals).ravel() for cost in costs.costs]
    sizes = np.array([np.linalg.norm(vector) for vector in residuals])
    products = np.array([[row @ column for column in residuals] for row in residuals])
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.nan_to_num(products / np.outer(sizes, sizes))
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    root: Numbers = vectors * np.maximum(values, 0) ** 0.5
    return root


def _root(half_width: Numbers) -> Numbers:
    """Symmetric root of the covariance whose differences have the given half-widths.

    By classical scaling (Torgerson 1952).

    Only differences matter for a frontier; what all points have in common, as a launch that
    measured all, is left out.
    """
    squares = (half_width / 1.96) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    root: Numbers = (vectors * np.maximum(values, 0) ** 0.5) @ vectors.T
    return root
