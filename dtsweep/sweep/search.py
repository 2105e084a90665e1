"""Search: settings of a sweep that measures the points with the largest expected gain alone."""

from __future__ import annotations

from dataclasses import dataclass

from dtsweep.errors import SweepError
from dtsweep.sweep.goal import Goal

RATES = ("samples_per_s", "tokens_per_s")
"""Columns that are inverse to the step time."""

TIMES = ("latency_s", "step_mean_s", "step_p50_s", "step_p95_s", "step_p99_s")
"""Columns that are proportional to the step time."""

PER_SAMPLE = ("energy_j_per_sample", "usd_per_million_samples")
"""Columns that are proportional to the step time, and to the workers or nodes for each sample."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of a search in the points of a sweep."""

    max_points: int | None = None
    """Points that are searched, at most; None: all of them."""

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        most = self.max_points
        if most is not None and (type(most) is not int or most < 1):
            raise SweepError(
                f"max_points={most!r} must be a whole number from 1", word="max_points"
            )

    def check(self, goal: Goal | None) -> None:
        """Refuse a goal whose objective does not follow from the step time.

        Raises:
            SweepError: it names the objective, and those that a search knows.
        """
        known = (*RATES, *TIMES, *PER_SAMPLE)
        objective = goal and (goal.maximize or goal.minimize)
        if objective is not None and objective not in known:
            raise SweepError(
                f"a search can't find the best {objective}, which does not follow from the step "
                f"time; it knows {', '.join(known)}; leave search out to measure all points",
                word="search",
            )
