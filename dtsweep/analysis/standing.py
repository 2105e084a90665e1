"""How points stand to each other: which ones another one beats, and how far launches can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.contrasts import Contrasts, contrasts
from dtsweep.analysis.spread import Launches

Rows = NDArray[np.intp]
Truth = NDArray[np.bool_]

_EQUAL = 1e-12
"""Logarithms that differ by less are those of equal numbers."""

_FAR = 4.0
"""A point that is told to be beaten by so many times the reach of the difference, 8 standard errors, is off in every
draw, and so is what it beats."""

_CELLS = 1 << 21
"""Pairs of points that are compared at once."""


class Beaten(NamedTuple):
    """Which points (rows) others (columns) beat."""

    told: Truth
    """As far as launches can tell."""
    untested: Truth
    """By the means of single launches, where nothing says how far launches differ."""
    by_estimate: Truth
    """By the estimates alone."""
    far: Truth
    """Told, and by far."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Latency and throughput of the points of one environment."""

    latency: Launches
    rate: Launches

    def both(self, first: Rows, second: Rows) -> tuple[Contrasts, Contrasts]:
        """How much slower, and how much higher, each of the first is than each of the second."""
        return contrasts(self.latency, first, second), contrasts(self.rate, first, second)

    def beaten(self, first: Rows, second: Rows) -> Beaten:
        """Which of the first are beaten by which of the second, by `difference`'s own estimates."""
        slower, higher = self.both(first, second)
        no_better = (slower.estimate > -_EQUAL) & (higher.estimate < _EQUAL)
        by_estimate = no_better & ((slower.estimate > _EQUAL) | (higher.estimate < -_EQUAL))
        single = np.logical_and.outer(*(self.latency.counts[points] == 1 for points in (first, second)))
        return Beaten(
            told=slower.greater & (-higher.estimate > higher.reach),
            untested=by_estimate & ~(slower.tested & higher.tested) & single,
            by_estimate=by_estimate,
            far=(slower.estimate > _FAR * slower.reach) & (-higher.estimate > _FAR * higher.reach),
        )

    def has_tests(self, numbers: Rows) -> bool:
        """Whether launches can tell anything of these points."""
        return any(each.apart or each.together or each.counts[numbers].max() > 1 for each in (self.latency, self.rate))

    def in_blocks(self, first: Rows, second: Rows) -> Beaten:
        """The same, with memory for some rows at a time beside the answer."""
        size = max(1, _CELLS // max(1, len(second)))
        blocks = [self.beaten(first[i : i + size], second) for i in range(0, len(first), size)]
        return Beaten(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def of_few(pair: Pair, numbers: Rows) -> tuple[NDArray[np.str_], Rows]:
    """Name how each point stands to the others; and which are near the frontier: all.

    Args:
        pair: of the environment.
        numbers: rows of points in it.
    """
    found = pair.beaten(numbers, numbers)
    return _named(found.told, found.untested, _for_any(found.by_estimate)), np.arange(len(numbers))


def of_many(pair: Pair, numbers: Rows) -> tuple[NDArray[np.str_], Rows]:
    """The same of many points, without comparing each with each; near is none where nothing can be tested.

    A point that is told by far to be worse than one which nothing beats is dominated, whatever else there is. All
    others are compared with all, and so is what beats them, so that no circle is overlooked.
    """
    best = _best(pair, numbers)
    if not pair.has_tests(numbers):
        is_beaten = pair.in_blocks(numbers, numbers[best]).by_estimate.any(axis=1)
        return np.where(is_beaten, "untested", "frontier"), np.arange(0)
    found = pair.in_blocks(numbers[best], numbers)
    unbeaten = best[~(found.told | found.untested).any(axis=1)]
    is_near = ~_for_any(pair.in_blocks(numbers, numbers[unbeaten]).far)
    is_near[unbeaten] = True
    order, found = _with_what_beats(pair, numbers, np.flatnonzero(is_near))
    names = np.full(len(numbers), "dominated", dtype="<U10")
    names[order] = _named(found.told[:, order], found.untested[:, order], _for_any(found.by_estimate))
    return names, np.flatnonzero(is_near)


def _with_what_beats(pair: Pair, numbers: Rows, waiting: Rows) -> tuple[Rows, Beaten]:
    """Compare points with all, then what beats them, and so on: the points in this order, and what beats them."""
    seen = np.zeros(len(numbers), dtype=np.bool_)
    order, parts = waiting[:0], []
    while len(waiting):
        seen[waiting] = True
        order = np.concatenate([order, waiting])
        parts.append(pair.in_blocks(numbers[waiting], numbers))
        beats = _for_any((parts[-1].told | parts[-1].untested).T)
        waiting = np.flatnonzero(beats & ~seen)
    return order, Beaten(*(np.concatenate(found) for found in zip(*parts, strict=True)))


def _named(told: Truth, untested: Truth, is_beaten: Truth) -> NDArray[np.str_]:
    from scipy.sparse.csgraph import connected_components

    # Where points share some launches each can be told to be beaten by the next one: none of these is off for that.
    circle = connected_components(told, connection="strong")[1]
    told = told & (circle[:, None] != circle)
    # The means of single launches can close such a circle, too.
    circle = connected_components(told | untested, connection="strong")[1]
    untested = untested & (circle[:, None] != circle)
    return np.select(
        [told.any(axis=1), untested.any(axis=1), is_beaten], ["dominated", "untested", "undecided"], "frontier"
    )


def _for_any(truth: Truth) -> Truth:
    """(points,) whether any other does."""
    found: Truth = np.logical_or.reduce(truth, axis=1)
    return found


def _best(pair: Pair, numbers: Rows) -> Rows:
    """The points that no other one beats by the means over all launches of each."""
    latency, rate = (each.centres[numbers] for each in (pair.latency, pair.rate))
    order = np.lexsort((-rate, latency))
    highest = np.maximum.accumulate(rate[order])
    best: Rows = order[np.concatenate([[True], highest[1:] > highest[:-1]])]
    return best
