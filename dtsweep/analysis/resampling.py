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

    What is far off the frontier is off in every draw, and changes no other point's draws.

    Args:
        costs: of the environment.
        numbers: rows of points in it.
        near: those of them that are not far off; none where nothing can be tested.
    """
    drawn = FrontierProbability(*np.full((2, len(numbers)), 0.0 if len(near) else np.nan))
    if len(near) == 1 < len(numbers):
        drawn.frontier[near] = 1.0
    elif len(near):
        found = _probability(costs, numbers[near])
        drawn.frontier[near], drawn.knee[near] = found
    return drawn


def _probability(costs: PointCosts, numbers: Rows) -> FrontierProbability:
    """As `probabilities`, for points near the frontier only."""
    each = costs.excess(numbers, numbers)
    tested = np.logical_and.reduce([found.tested for found in each])
    kept = _known_beside_each_other(tested | np.eye(len(numbers), dtype=np.bool_))
    drawn = FrontierProbability(*np.full((2, len(numbers)), np.nan))
    if len(kept) > 1 or (len(numbers) == 1 and tested.all()):
        found = _shares_of_draws(_draws(costs, numbers[kept], each, kept))
        drawn.frontier[kept], drawn.knee[kept] = found
    return drawn


def _known_beside_each_other(tested: NDArray[np.bool_]) -> Rows:
    """Leave points out that least is known of, the least known first."""
    inside = np.ones(len(tested), dtype=np.bool_)
    counts = tested.sum(axis=1)
    while (counts[inside] < inside.sum()).any():
        least = np.where(inside, counts, len(counts) + 1).argmin()
        inside[least] = False
        counts = counts - tested[:, least]
    return inside.nonzero()[0]


def _draws(costs: PointCosts, numbers: Rows, each: Sequence[Contrasts], kept: Rows) -> Numbers:
    """Draw the costs of points again, (draws, points, objectives), where all errors are known.

    Args:
        costs: of the environment.
        numbers: rows of points in it.
        each: by objective, contrasts of these and more points.
        kept: which of those these are.
    """
    others = ~np.eye(len(kept), dtype=np.bool_)
    cells = np.ix_(kept, kept)
    rng = np.random.default_rng(0)
    noise = np.tensordot(_mixture(costs), rng.normal(size=(len(each), _DRAWS, len(kept))), axes=1)
    drawn = np.empty((_DRAWS, len(kept), len(each)))
    for place, (found, cost) in enumerate(zip(each, costs.costs, strict=True)):
        if cost.is_exact:
            drawn[:, :, place] = cost.launches.centres[numbers]
        else:
            # Differences to the mean of all: those to one point would depend on which one that is.
            drawn[:, :, place] = found.estimate[cells].mean(axis=1) + noise[place] @ _root(
                found.half_width[cells] * others
            )
    return drawn


def _shares_of_draws(drawn: Numbers) -> FrontierProbability:
    """In which share of the draws each point is on the frontier, and its knee."""
    on, knee = np.zeros((2, drawn.shape[1]))
    for costs in drawn:
        places = on_frontier(costs).nonzero()[0]
        on[places] += 1
        row = knee_of(costs[places])
        if row is not None:
            knee[places[row]] += 1
    return FrontierProbability(on / len(drawn), knee / len(drawn))


def _mixture(costs: PointCosts) -> Numbers:
    """Square root of the correlation matrix of a point's cost errors, from launches' deviations."""
    left = [np.nan_to_num(cost.launches.left).ravel() for cost in costs.costs]
    sizes = np.array([np.linalg.norm(each) for each in left])
    products = np.array([[one @ other for other in left] for one in left])
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
