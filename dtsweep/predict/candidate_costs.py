"""Costs of candidates as functions of their step times, and what is known of those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtsweep.inference.pareto import on_frontier
from dtsweep.predict.setups import Flags, Numbers

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Objectives:
    """Two costs of n candidates, in proportion to their step times; smaller is better."""

    offset: Numbers
    """(n, 2) logarithm of each cost at a step time of one second."""

    group: Rows
    """(n,) number of the frontier that a candidate competes for."""

    longest: Numbers | float = np.inf
    """(n,) logarithm of the longest step time that meets the conditions."""

    def is_met(self, log_step_s: Numbers) -> Flags:
        """True where step times meet the conditions, (..., n)."""
        is_met: Flags = log_step_s <= self.longest
        return is_met

    def log_costs(self, log_step_s: Numbers) -> Numbers:
        """Evaluate the logarithms of the costs.

        Args:
            log_step_s: (..., n) logarithms of step times in seconds.

        Returns:
            (..., n, 2)
        """
        costs: Numbers = self.offset + log_step_s[..., None]
        return costs


def latency_and_rate(
    samples_per_step: ArrayLike, *, latency_ratio: ArrayLike = 1.0, group: ArrayLike = 0
) -> Objectives:
    """Make latency and samples per second two costs: the rate counts by its inverse.

    Args:
        samples_per_step: (n,) over all workers.
        latency_ratio: (n,) or single, latency over mean step time.
        group: (n,) or single, number of the frontier.

    >>> latency_and_rate([8, 16]).log_costs(np.log([1.0, 2.0])).round(2).tolist()
    [[0.0, -2.08], [0.69, -2.08]]
    """
    samples = np.asarray(samples_per_step, dtype=np.float64)
    latency = np.broadcast_to(np.log(latency_ratio), samples.shape)
    return Objectives(
        offset=np.stack([latency, -np.log(samples)], axis=1),
        group=np.array(np.broadcast_to(group, samples.shape), dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Step times of n candidates: measured ones are known, the others predicted."""

    log_step_s: Numbers
    """(n,) logarithm of the step time in seconds: the measured one, or the predicted mean."""

    error: Numbers
    """(n,) standard deviation of its prediction."""

    is_measured: Flags
    """(n,) True where the step time was measured."""

    chance: Numbers
    """(n,) probability that a trial ends with a measurement; 0 where one failed for good."""

    @property
    def is_open(self) -> Flags:
        """(n,) True where a trial can tell something."""
        is_open: Flags = ~self.is_measured & (self.chance > 0)
        return is_open


def frontier_of(objectives: Objectives, estimates: Estimates) -> Flags:
    """Mark the measured candidates that no measured one of their group dominates, (n,).

    Only those that meet the conditions count.
    """
    costs = objectives.log_costs(estimates.log_step_s)
    costs[~(estimates.is_measured & objectives.is_met(estimates.log_step_s))] = np.nan
    is_best = np.zeros(len(costs), dtype=np.bool_)
    for group in np.unique(objectives.group):
        rows = objectives.group == group
        is_best[rows] = on_frontier(costs[rows])
    return is_best
