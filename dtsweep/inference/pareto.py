"""Frontiers of numbers: rows that no other row dominates, their hypervolume, their knee."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]

_BEYOND = 1e300
"""In place of infinity."""


def on_frontier(costs: Costs) -> NDArray[np.bool_]:
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


def hypervolume_of(costs: Costs, reference: NDArray[np.float64]) -> float:
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


def knee_of(costs: Costs) -> int | None:
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
    distinct = len({tuple(row) for row in costs.tolist()})
    if distinct < 3:
        return None
    best = costs.min(axis=0)
    worst = costs.max(axis=0)
    varies = worst > best
    above_best = costs[:, varies] - best[varies]
    sums = (above_best / (worst - best)[varies]).sum(axis=1)
    row = int(sums.argmin())
    # The ends of two objectives have the sum 1, as has all that lies on the line between them.
    ends = sums[(costs[:, varies] == best[varies]).any(axis=1)]
    if sums[row] < ends.min() - 1e-9:
        return row
    return None
