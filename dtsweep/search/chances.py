"""Chance that a candidate without a measurement beats the answer."""

from __future__ import annotations

import numpy as np

from dtsweep.model.setups import Numbers
from dtsweep.search.objectives import Estimates, Objectives, frontier_of

ZONE = 0.02
"""Share by which a point has to be better, to count."""


def chance_to_join(objectives: Objectives, estimates: Estimates, *, zone: float = ZONE) -> Numbers:
    """Probability that each candidate beats the frontier by more than a zone.

    It does so if each member of the frontier of its group is worse by more than the zone in one of
    the costs: no member would dominate it even if both its costs were smaller by the zone.

    Returns:
        (n,) 0 where a candidate was measured or can't be.
    """
    costs = objectives.log_costs(estimates.log_step_s)
    is_best = frontier_of(objectives, estimates)
    longest = np.full(len(costs), np.inf)
    for group in np.unique(objectives.group):
        is_member = objectives.group == group
        limits = costs[is_best & is_member] - np.log1p(zone)
        longest[is_member] = _longest(objectives, limits)[is_member]
    if objectives.longest is not None:
        longest = np.minimum(longest, objectives.longest)
    return _chance(estimates, longest)


def chance_to_improve(
    cost: Numbers,
    estimates: Estimates,
    *,
    best: Numbers | float,
    most_log_step_s: Numbers | float = np.inf,
    zone: float = ZONE,
) -> Numbers:
    """Probability that each candidate beats the best cost by more than a zone.

    Args:
        cost: (n,) logarithm of the cost at a step time of one second.
        estimates: of the candidates.
        best: (n,) or single, logarithm of the least measured cost that meets the conditions.
        most_log_step_s: (n,) or single, logarithm of the longest step time that meets them.
        zone: share by which a candidate has to be better.

    Returns:
        (n,) 0 where a candidate was measured or can't be.
    """
    longest = np.minimum(best - np.log1p(zone) - cost, most_log_step_s)
    return _chance(estimates, longest)


def _longest(objectives: Objectives, limits: Numbers) -> Numbers:
    """(n,) logarithm of the longest step time with which no member dominates a candidate.

    Args:
        objectives: of the candidates.
        limits: (members, 2) log costs, below one of which a candidate has to be for each member.
    """
    of_best_cost: Numbers = (limits[:, None, :] - objectives.offset).max(axis=2)
    shortest: Numbers = of_best_cost.min(axis=0, initial=np.inf)
    return shortest


def _chance(estimates: Estimates, longest: Numbers) -> Numbers:
    """(n,) probability of a step time below a limit, and of a measurement at all."""
    from scipy.special import ndtr

    below = ndtr((longest - estimates.log_step_s) / estimates.error)
    return np.where(estimates.is_open, below * estimates.chance, 0.0)


def most_of(chances: Numbers) -> int:
    """Number of points that is not exceeded with probability 95 %, however chances hang together.

    All chances come from one model. If its error is common to all points, those with a chance of
    5 % or more beat the answer together. If errors are independent, the number is near a Poisson
    distribution. The larger of both is taken.

    >>> most_of(np.array([0.3, 0.06, 0.06, 0.06, 0.01])), most_of(np.full(100, 0.03))
    (4, 6)
    """
    from scipy.special import pdtrik

    together = int((chances >= 0.05).sum())
    apart = int(np.ceil(pdtrik(0.95, float(chances.sum())))) if chances.sum() > 0 else 0
    return max(together, min(apart, int((chances > 0).sum())))
