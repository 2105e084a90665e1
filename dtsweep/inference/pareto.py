"""Frontiers of numbers: rows that no other row dominates, their hypervolume, their knee."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Costs = NDArray[np.float64]
_Flags = NDArray[np.bool_]

_BEYOND = 1e300
"""In place of infinity."""


def on_frontier(costs: _Costs) -> _Flags:
    """Mark the rows that no other row dominates.

    Args:
        costs: (points, objectives), smaller is better; negate what should grow. A row with nan is
            unknown.

    Returns:
        (points,), True on the frontier. Equal rows don't dominate each other; an unknown row is
        neither on the frontier nor does it dominate another.
    """
    import moocore

    is_known = ~np.isnan(costs).any(axis=1)
    is_on_frontier = np.zeros(len(costs), dtype=np.bool_)
    if is_known.any():
        # moocore takes infinities for its own marks of what is beyond all rows.
        finite = np.nan_to_num(costs[is_known], posinf=_BEYOND, neginf=-_BEYOND)
        is_on_frontier[is_known] = moocore.is_nondominated(finite, keep_weakly=True)
    return is_on_frontier


def on_frontiers(draws: _Costs) -> _Flags:
    """Mark the rows of each draw that no other row of it dominates, as `on_frontier` does.

    Args:
        draws: (draws, points, objectives), all known.

    Returns:
        (draws, points), True on the frontier of the draw.
    """
    if draws.shape[2] != 2:
        return np.array([on_frontier(costs) for costs in draws])
    # From the best first objective on, a row is beaten if an earlier one is as good in the second.
    first, second = draws[:, :, 0], draws[:, :, 1]
    order = np.lexsort((second, first), axis=1)
    first = np.take_along_axis(first, order, axis=1)
    second = np.take_along_axis(second, order, axis=1)
    least = np.minimum.accumulate(second, axis=1)
    is_new = np.ones(order.shape, dtype=np.bool_)
    is_new[:, 1:] = least[:, 1:] < least[:, :-1]
    # Equal rows follow each other; they don't dominate each other.
    places = np.arange(order.shape[1])
    newest = np.maximum.accumulate(np.where(is_new, places, 0), axis=1)
    first_of_least = np.take_along_axis(first, newest, axis=1)
    is_equal = (second == least) & (first == first_of_least)
    is_on_frontier = np.empty(order.shape, dtype=np.bool_)
    np.put_along_axis(is_on_frontier, order, is_equal, axis=1)
    return is_on_frontier


def hypervolume_of(costs: _Costs, reference: NDArray[np.float64]) -> float:
    """Measure the volume between a reference point and the rows that dominate it.

    Args:
        costs: (points, objectives), smaller is better. Rows with nan or beyond the reference count
            nothing.
        reference: (objectives,) the worst that is of interest.

    Returns:
        In the product of the objectives' units; 0 where no row dominates the reference.
    """
    import moocore

    inside = costs[(costs < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    return float(moocore.hypervolume(inside, ref=reference))


def knee_of(costs: _Costs) -> int | None:
    """Find the knee of a frontier: the row with the least sum of objectives scaled to [0, 1].

    It is the one of the least sum, when each objective goes from 0, its best on the frontier, to 1,
    its worst there. Of two objectives that is the one farthest from the straight line between both
    ends.

    Args:
        costs: (points, objectives) of the frontier alone, smaller is better; logarithms, where
            ratios count.

    Returns:
        Its row, the first of equal ones; None where fewer than three rows differ, or none lies
        inside of that line.
    """
    if not len(costs):
        return None
    row = int(knees_of(costs[None], np.ones((1, len(costs)), dtype=np.bool_))[0])
    return None if row < 0 else row


def knees_of(draws: _Costs, is_on_frontier: _Flags) -> NDArray[np.intp]:
    """Find the knee of each draw, as `knee_of` does.

    Args:
        draws: (draws, points, objectives), smaller is better.
        is_on_frontier: (draws, points), of each draw at least one.

    Returns:
        (draws,) its row; -1 without one.
    """
    is_inside = is_on_frontier[:, :, None]
    best = np.where(is_inside, draws, np.inf).min(axis=1, keepdims=True)
    worst = np.where(is_inside, draws, -np.inf).max(axis=1, keepdims=True)
    # A cost of 0 has an infinite logarithm.
    with np.errstate(invalid="ignore"):
        size = np.where(worst > best, worst - best, np.inf)
        scaled = (draws - best) / size
    sums = np.where(is_on_frontier, scaled.sum(axis=2), np.inf)
    rows = sums.argmin(axis=1)
    # The ends of two objectives have the sum 1, as has all that lies on the line between them.
    is_best = is_inside & (draws == best) & (worst > best)
    is_end = is_best.any(axis=2)
    ends = np.where(is_end, sums, np.inf).min(axis=1)
    # Of one row, or of equal ones, no objective has ends.
    is_knee = (sums.min(axis=1) < ends - 1e-9) & np.isfinite(ends)
    return np.where(is_knee, rows, -1)
