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
    best, worst = costs.min(axis=0), costs.max(axis=0)
    # A cost of 0 has an infinite logarithm.
    with np.errstate(invalid="ignore"):
        sums = ((costs - best) / np.where(worst > best, worst - best, np.inf)).sum(axis=1)
    # The ends of two objectives have the sum 1, as has all that lies on the line between them.
    is_end = ((costs == best) & (worst > best)).any(axis=1)
    row = int(sums.argmin())
    # Of one row, or of equal ones, no objective has ends.
    if not is_end.any() or not sums[row] < sums[is_end].min() - 1e-9:
        return None
    return row
