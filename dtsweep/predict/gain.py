"""Expected gain of one more measurement, and chance that it beats the answer.

A gain is of hypervolume on a frontier, or an improvement of one cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.inference.pareto import hypervolume_of
from dtsweep.predict.candidate_costs import Estimates, Objectives, frontier_of
from dtsweep.predict.setups import Numbers

REFERENCE = 1.1
"""Reference of the hypervolume, where the best of all candidates is 0 and the worst is 1."""

NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
"""Gauss–Hermite quadrature over a standard normal distribution."""

_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True, eq=False)
class Gains:
    """Expected gains of hypervolume, where each log cost is scaled to its range in the group."""

    gain: Numbers
    """(n,) expected gain of each candidate; 0 where it was measured or can't be."""

    hypervolume: Numbers
    """(n,) hypervolume of the measured candidates of each one's group."""

    @property
    def share(self) -> Numbers:
        """(n,) gain as a share of the group's hypervolume.

        Where nothing of a group was measured, as a share of the largest possible one.
        """
        return self.gain / np.where(self.hypervolume > 0, self.hypervolume, REFERENCE**2)

    @property
    def largest_share(self) -> float:
        """Largest of the shares; infinite before the first measurement."""
        if not self.hypervolume.any():
            return float("inf")
        return float(self.share.max(initial=0.0))


def expected_gain(objectives: Objectives, estimates: Estimates) -> Gains:
    """Integrate the gain of hypervolume over each candidate's predicted step time.

    Both costs follow from the step time, so that one quadrature over its logarithm is enough. A
    candidate gains in its own group alone. Each log cost is scaled to its range over the group, so
    that neither units nor other groups matter. A step time that breaks a condition gains nothing.
    """
    costs = objectives.log_costs(estimates.log_step_s)
    log_steps = estimates.log_step_s + NODES[:, None] * estimates.error
    shifted = objectives.log_costs(log_steps)
    is_met = objectives.is_met(log_steps)
    is_best, is_open = frontier_of(objectives, estimates), estimates.is_open
    is_known = estimates.is_measured | is_open
    gain, hypervolume = np.zeros(len(costs)), np.zeros(len(costs))
    for group in np.unique(objectives.group[is_known]):
        is_member = objectives.group == group
        known = costs[is_known & is_member]
        low, spread = known.min(axis=0), np.ptp(known, axis=0)
        width = np.where(spread > 0, spread, 1.0)
        frontier = (costs[is_best & is_member] - low) / width
        hypervolume[is_member] = hypervolume_of(frontier, np.full(2, REFERENCE))
        is_asked = is_open & is_member
        areas = hypervolume_gain((shifted[:, is_asked] - low) / width, frontier)
        gain[is_asked] = _WEIGHTS @ np.where(is_met[:, is_asked], areas, 0.0)
    return Gains(gain=gain * estimates.chance, hypervolume=hypervolume)


def hypervolume_gain(costs: Numbers, frontier: Numbers) -> Numbers:
    """Measure the area that each point adds to those that a frontier dominates.

    Args:
        costs: (..., 2) of the points, smaller is better.
        frontier: (members, 2) costs of points that don't dominate each other.

    Returns:
        (...,) areas below `REFERENCE`.
    """
    members = frontier[np.argsort(frontier[:, 0], kind="stable")].clip(max=REFERENCE)
    starts = np.concatenate([[-np.inf], members[:, 0]])
    ends = np.concatenate([members[:, 0], [REFERENCE]])
    heights = np.concatenate([[REFERENCE], members[:, 1]])
    first, second = costs[..., 0], costs[..., 1]
    area: Numbers = np.zeros(first.shape)
    # A frontier of two costs is a staircase: each step adds a rectangle of its own.
    for start, end, height in zip(starts, ends, heights, strict=True):
        width = (end - np.maximum(first, start)).clip(min=0)
        area += width * (height - second).clip(min=0)
    return area


def expected_improvement(
    cost: Numbers,
    estimates: Estimates,
    *,
    best: Numbers | float,
    most_log_step_s: Numbers | float = np.inf,
) -> Numbers:
    """Expect the improvement of one cost under conditions, for each candidate.

    The cost grows in proportion to the step time, as latency, seconds per sample and price do. A
    condition that limits another such cost is a limit of the step time.

    Args:
        cost: (n,) logarithm of the cost at a step time of one second.
        estimates: of the candidates.
        best: (n,) or single, logarithm of the least measured cost that meets the conditions; where
            there is none yet, the largest cost of interest.
        most_log_step_s: (n,) or single, logarithm of the longest step time that meets all
            conditions; minus infinity where no step time does.

    Returns:
        (n,) mean decrease of the logarithm of the cost, 0.01 for about 1 %; no improvement counts
        where a condition is broken. 0 where a candidate was measured or can't be.
    """
    from scipy.special import ndtr

    error = estimates.error
    target = best - cost
    limit = np.minimum(target, most_log_step_s)
    z = (limit - estimates.log_step_s) / error
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    improvement = (target - estimates.log_step_s) * ndtr(z) + error * density
    return np.where(estimates.is_open, improvement.clip(min=0) * estimates.chance, 0.0)


def chance_to_join(objectives: Objectives, estimates: Estimates, *, zone: float) -> Numbers:
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
        # A candidate has to be below one of its limits for each member.
        of_best_cost = (limits[:, None, :] - objectives.offset).max(axis=2)
        longest[is_member] = of_best_cost.min(axis=0, initial=np.inf)[is_member]
    return _chance(estimates, np.minimum(longest, objectives.longest))


def chance_to_improve(
    cost: Numbers,
    estimates: Estimates,
    *,
    best: Numbers | float,
    most_log_step_s: Numbers | float = np.inf,
    zone: float,
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
    expected = float(chances.sum())
    apart = 0
    if expected > 0:
        apart = int(np.ceil(pdtrik(0.95, expected)))
    return max(together, min(apart, int((chances > 0).sum())))
