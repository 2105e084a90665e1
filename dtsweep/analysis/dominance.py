"""Dominance between points: which ones another one beats, and how far launches can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.objectives import Cost
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.pareto import on_frontier

Rows = NDArray[np.intp]
Truth = NDArray[np.bool_]

STANDINGS = {
    "frontier": "no other point beats it by the means over launches (of two points: over those "
    "that they share)",
    "undecided": "another point does, but launches can't tell, or tell it of points in a circle",
    "dominated": "launches can tell that another point beats it",
    "untested": "another point beats it, both have one launch, and nothing else says how far "
    "launches differ",
}
"""Relation of a point to the others."""

_EQUAL = 1e-12
"""Logarithms that differ by less are those of equal numbers."""

_FAR = 4.0
"""Number of half-widths beyond which a significant difference holds in every draw.

It is 8 standard errors. A point beaten by that much is off the frontier in every draw, and so is
each point that it beats.
"""

_CELLS = 1 << 21
"""Pairs of points that are compared at once."""


class Dominance(NamedTuple):
    """Matrix of which points (rows) are beaten by which others (columns)."""

    significant: Truth
    """As far as launches can tell."""
    untested: Truth
    """By the means of single launches, where nothing says how far launches differ."""
    by_estimate: Truth
    """By the estimates alone."""
    far: Truth
    """Significantly beaten, and by far."""


@dataclass(frozen=True, eq=False)
class PointCosts:
    """The points of one environment, by their costs."""

    costs: tuple[Cost, ...]
    """One per objective, with the same points."""

    def excess(self, first: Rows, second: Rows) -> list[Contrasts]:
        """By objective how much more each of the first costs than each of the second."""
        return [cost.contrasts(first, second) for cost in self.costs]

    def beaten(self, first: Rows, second: Rows) -> Dominance:
        """Matrix of which first points the second ones beat, without the machine's drift."""
        each = self.excess(first, second)
        no_better = _in_all(found.estimate > -_EQUAL for found in each)
        by_estimate = no_better & _in_any(found.estimate > _EQUAL for found in each)
        counts = self.costs[0].launches.counts
        single = np.logical_and.outer(*(counts[points] == 1 for points in (first, second)))
        return Dominance(
            significant=by_estimate & self._in_measured(each, lambda found: found.greater),
            untested=by_estimate & ~_in_all(found.tested for found in each) & single,
            by_estimate=by_estimate,
            far=by_estimate
            & self._in_measured(each, lambda found: found.estimate > _FAR * found.half_width),
        )

    def has_tests(self, numbers: Rows) -> bool:
        """True if launches can tell anything of these points."""
        measured = [cost.launches for cost in self.costs if not cost.is_exact]
        return not measured or any(
            each.apart or each.together or each.counts[numbers].max() > 1 for each in measured
        )

    def centres(self, numbers: Rows) -> NDArray[np.float64]:
        """Costs by the means over all launches of each, (points, objectives)."""
        return np.column_stack([cost.launches.centres[numbers] for cost in self.costs])

    def _in_measured(self, each: Sequence[Contrasts], holds: Callable[[Contrasts], Truth]) -> Truth:
        """Reduce over the objectives that are measured; those that are set need no test."""
        measured = [
            holds(found) for found, cost in zip(each, self.costs, strict=True) if not cost.is_exact
        ]
        if measured:
            return _in_all(measured)
        return np.ones(each[0].estimate.shape, dtype=np.bool_)

    def in_blocks(self, first: Rows, second: Rows) -> Dominance:
        """As `_beaten`, computed for a few rows at a time to bound the memory."""
        size = max(1, _CELLS // max(1, len(second)))
        blocks = [self.beaten(first[i : i + size], second) for i in range(0, len(first), size)]
        return Dominance(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def compare_all(costs: PointCosts, numbers: Rows) -> tuple[NDArray[np.str_], Rows]:
    """Name how each point stands to the others; and which are near the frontier: all.

    Args:
        costs: of the environment.
        numbers: rows of points in it.
    """
    found = costs.beaten(numbers, numbers)
    return _named(found.significant, found.untested, _for_any(found.by_estimate)), np.arange(
        len(numbers)
    )


def compare_near(costs: PointCosts, numbers: Rows) -> tuple[NDArray[np.str_], Rows]:
    """As `compare_all`, for many points, without comparing every pair.

    Near is none where nothing can be tested.

    A point that is significantly and by far worse than one which nothing beats is dominated,
    whatever else there is. All others are compared with all, and so is what beats them, so that no
    circle is overlooked.
    """
    best = np.flatnonzero(on_frontier(costs.centres(numbers)))
    if not costs.has_tests(numbers):
        is_beaten = costs.in_blocks(numbers, numbers[best]).by_estimate.any(axis=1)
        return np.where(is_beaten, "untested", "frontier"), np.arange(0)
    found = costs.in_blocks(numbers[best], numbers)
    unbeaten = best[~(found.significant | found.untested).any(axis=1)]
    is_near = ~_for_any(costs.in_blocks(numbers, numbers[unbeaten]).far)
    is_near[unbeaten] = True
    order, found = _with_what_beats(costs, numbers, np.flatnonzero(is_near))
    names = np.full(len(numbers), "dominated", dtype="<U10")
    names[order] = _named(
        found.significant[:, order], found.untested[:, order], _for_any(found.by_estimate)
    )
    return names, np.flatnonzero(is_near)


def _with_what_beats(costs: PointCosts, numbers: Rows, waiting: Rows) -> tuple[Rows, Dominance]:
    """Compare points with all others, then those that beat them, and so on.

    Returns the points in this order and what beats them.
    """
    seen = np.zeros(len(numbers), dtype=np.bool_)
    order, parts = waiting[:0], []
    while len(waiting):
        seen[waiting] = True
        order = np.concatenate([order, waiting])
        parts.append(costs.in_blocks(numbers[waiting], numbers))
        beats = _for_any((parts[-1].significant | parts[-1].untested).T)
        waiting = np.flatnonzero(beats & ~seen)
    return order, Dominance(*(np.concatenate(found) for found in zip(*parts, strict=True)))


def _named(significant: Truth, untested: Truth, is_beaten: Truth) -> NDArray[np.str_]:
    from scipy.sparse.csgraph import connected_components

    # Where points share some launches each can be told to be beaten by the next one: none of these
    # is off for that.
    circle = connected_components(significant, connection="strong")[1]
    significant = significant & (circle[:, None] != circle)
    # The means of single launches can close such a circle, too.
    circle = connected_components(significant | untested, connection="strong")[1]
    untested = untested & (circle[:, None] != circle)
    return np.select(
        [significant.any(axis=1), untested.any(axis=1), is_beaten],
        ["dominated", "untested", "undecided"],
        "frontier",
    )


def _for_any(truth: Truth) -> Truth:
    """(points,) whether any other does."""
    found: Truth = np.logical_or.reduce(truth, axis=1)
    return found


def _in_all(truths: Iterable[Truth]) -> Truth:
    found: Truth = np.logical_and.reduce([*truths])
    return found


def _in_any(truths: Iterable[Truth]) -> Truth:
    found: Truth = np.logical_or.reduce([*truths])
    return found
