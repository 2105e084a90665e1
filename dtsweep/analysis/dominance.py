"""Dominance between points: which points another point beats, and how far launches can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.objectives import Cost
from dtsweep.inference.pareto import on_frontier
from dtsweep.inference.selection import LEAST_AGAIN, differences_of

Rows = NDArray[np.intp]
Truth = NDArray[np.bool_]

_EQUAL = 1e-12
"""Logarithms that differ by less are those of equal numbers."""

_FAR = 4.0
"""Number of half-widths beyond which a significant difference holds in every draw.

It is 8 standard errors. A point beaten by that much is off the frontier in every draw, and so is
each point that it beats.
"""

_CELLS = 1 << 21
"""Pairs of points that are compared at once."""


class _Dominance(NamedTuple):
    """Matrices that are True where a point (row) is beaten by another one (column)."""

    significant: Truth
    """Significantly beaten."""
    by_estimate: Truth
    """Beaten by the estimates alone."""
    by_far: Truth
    """Significantly beaten, by more than `_FAR` half-widths."""
    within_zone: Truth
    """Not beaten by more than the indifference zone, as launches show."""


@dataclass(frozen=True, eq=False)
class PointCosts:
    """The points of one environment, by their costs."""

    costs: tuple[Cost, ...]
    """One per objective, with the same points."""
    level: float = 0.05
    """Two-sided significance level of a comparison by one objective."""
    zone: float = 0.0
    """Indifference zone, as a share."""

    def dominance(self, first: Rows, second: Rows) -> _Dominance:
        """Compare the first points with the second ones, without the machine's drift."""
        shape = len(first), len(second)
        no_better, is_greater, is_far, all_settled = np.ones((4, *shape), dtype=np.bool_)
        is_worse, is_within = np.zeros((2, *shape), dtype=np.bool_)
        for cost in self.costs:
            contrast = cost.contrasts(first, second)
            difference = differences_of(contrast, cost.launches, first, second, sizes=cost.sizes)
            excess = difference.estimate
            half_width = difference.half_width(self.level)
            is_settled = self._is_settled(cost, first, second)
            no_better &= excess > -_EQUAL
            is_worse |= excess > _EQUAL
            is_greater &= is_settled | (excess > half_width)
            is_far &= is_settled | (excess > _FAR * half_width)
            all_settled &= is_settled
            is_near = (excess + half_width <= self._zone_of(cost)) & difference.is_tested
            is_within |= np.where(is_settled, excess < -_EQUAL, is_near)
        by_estimate = no_better & is_worse
        # An equal cost that is settled leaves the decision to those that are not.
        is_within |= ~by_estimate & all_settled
        return _Dominance(
            significant=by_estimate & is_greater,
            by_estimate=by_estimate,
            by_far=by_estimate & is_far,
            within_zone=is_within,
        )

    def _zone_of(self, cost: Cost) -> float:
        """Indifference zone in units of a cost."""
        if cost.is_relative:
            return float(np.log1p(self.zone))
        return float(self.zone * np.abs(cost.launches.point_means).max(initial=0.0))

    def mean_costs(self, numbers: Rows) -> NDArray[np.float64]:
        """Costs by the means over all launches of each, (points, objectives)."""
        return np.column_stack([cost.launches.point_means[numbers] for cost in self.costs])

    def _is_settled(self, cost: Cost, first: Rows, second: Rows) -> Truth:
        """True where no test is needed: the cost is set, or equal in all launches of both."""
        if cost.is_exact:
            return np.ones((len(first), len(second)), dtype=np.bool_)
        constant = cost.launches.constants
        is_equal: Truth = np.abs(np.subtract.outer(constant[first], constant[second])) < _EQUAL
        return is_equal

    def dominance_in_blocks(self, first: Rows, second: Rows) -> _Dominance:
        """As `dominance`, computed for a few rows at a time to bound the memory."""
        size = max(1, _CELLS // max(1, len(second)))
        starts = range(0, len(first), size)
        blocks = [self.dominance(first[start : start + size], second) for start in starts]
        return _Dominance(*(np.concatenate(matrices) for matrices in zip(*blocks, strict=True)))


_MANY = 500
"""Points from which on those that are far off the frontier are found by the best ones alone."""


def compare(costs: PointCosts, numbers: Rows) -> NDArray[np.str_]:
    """Name each point's relation to the others.

    - `frontier`: no other point beats it by the means over launches (of two points: over those that
      they share).
    - `undecided`: another point beats it by the means, but not significantly, or points beat each
      other in a circle.
    - `dominated`: another point beats it significantly; where nothing shows how far launches
      differ, as if they differed by 3 %.
    """
    if len(numbers) > _MANY:
        return compare_near(costs, numbers)
    return compare_all(costs, numbers)


def compare_all(costs: PointCosts, numbers: Rows) -> NDArray[np.str_]:
    """Name each point's relation to the others, by all pairs."""
    dominance = costs.dominance(numbers, numbers)
    is_beaten = np.logical_or.reduce(dominance.by_estimate, axis=1)
    return _standings(dominance.significant, is_beaten)


def places_to_launch(
    costs: PointCosts, numbers: Rows, standings: NDArray[np.str_]
) -> tuple[Rows, Rows]:
    """Find the points that may or may not be on the frontier, and the points that may beat them.

    A point is off it if another one beats it significantly. It is on it if no other one beats it by
    more than the indifference zone, as launches show. Else it is open.

    Returns:
        Places in `numbers` of the open points, and of those that may beat them.
    """
    if len(numbers) == 1:
        return numbers[:0], numbers[:0]
    near = np.flatnonzero(standings != "dominated")
    is_within = costs.dominance_in_blocks(numbers[near], numbers[near]).within_zone
    np.fill_diagonal(is_within, val=True)
    is_open = ~np.logical_and.reduce(is_within, axis=1)
    may_beat = ~np.logical_and.reduce(is_within[is_open], axis=0)
    is_single = costs.costs[0].launches.counts[numbers].max() < 2
    is_measured = not all(cost.is_exact for cost in costs.costs)
    if is_single and is_measured:
        # Nothing shows yet how far launches differ: some points are launched again in any case.
        best_first = np.argsort(costs.mean_costs(numbers)[:, -1], kind="stable")
        return near[is_open], np.union1d(near, best_first[:LEAST_AGAIN])
    return near[is_open], near[may_beat]


def compare_near(costs: PointCosts, numbers: Rows) -> NDArray[np.str_]:
    """As `compare_all`, for many points, without comparing every pair.

    A point that is significantly and by far worse than an unbeaten one is dominated, whatever else
    there is. All others are compared with all points, and so are those that beat them, so that no
    circle is overlooked.
    """
    best = np.flatnonzero(on_frontier(costs.mean_costs(numbers)))
    dominance = costs.dominance_in_blocks(numbers[best], numbers)
    unbeaten = best[~dominance.significant.any(axis=1)]
    by_far = costs.dominance_in_blocks(numbers, numbers[unbeaten]).by_far
    is_near: Truth = ~np.logical_or.reduce(by_far, axis=1)
    is_near[unbeaten] = True
    order, dominance = _with_dominators(costs, numbers, np.flatnonzero(is_near))
    names = np.full(len(numbers), "dominated", dtype="<U10")
    names[order] = _standings(
        dominance.significant[:, order],
        np.logical_or.reduce(dominance.by_estimate, axis=1),
    )
    return names


def _with_dominators(costs: PointCosts, numbers: Rows, pending: Rows) -> tuple[Rows, _Dominance]:
    """Compare points with all others, then those that beat them, and so on.

    Returns the points in this order, and their dominance by all points.
    """
    is_compared = np.zeros(len(numbers), dtype=np.bool_)
    order, parts = pending[:0], []
    while len(pending):
        is_compared[pending] = True
        order = np.concatenate([order, pending])
        parts.append(costs.dominance_in_blocks(numbers[pending], numbers))
        is_dominator = parts[-1].significant.any(axis=0)
        pending = np.flatnonzero(is_dominator & ~is_compared)
    return order, _Dominance(*(np.concatenate(matrices) for matrices in zip(*parts, strict=True)))


def _standings(significant: Truth, is_beaten: Truth) -> NDArray[np.str_]:
    """Name each point's relation to the others, as `compare` names it.

    Args:
        significant: (points, points), True where a point is significantly beaten by another one.
        is_beaten: (points,), True where it is beaten by any other point's estimate.
    """
    from scipy.sparse.csgraph import connected_components

    # Where points share some launches, each can be significantly beaten by the next one in a
    # circle. That takes none of them off the frontier.
    circle = connected_components(significant, connection="strong")[1]
    significant = significant & (circle[:, None] != circle)
    return np.select(
        [significant.any(axis=1), is_beaten],
        ["dominated", "undecided"],
        "frontier",
    )
