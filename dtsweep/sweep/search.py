"""Search: settings of a sweep that measures the points with the largest expected gain alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtsweep.errors import SweepError, quoted
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

    first_points: int = 6
    """Points that are measured before a model chooses: far apart, and cheap ones."""

    least_gain: float = 0.002
    """Expected gain below which the search ends.

    On a frontier a share of its hypervolume, for a goal a share of the best value.
    """

    max_points: int | None = None
    """Points that are searched, at most; None: all of them."""

    searcher: Callable[[], Any] | None = None
    """Function that makes a searcher of Ray Tune, which chooses the points instead of the model.

    Such as `lambda: OptunaSearch(space, metric="samples_per_s", mode="max", seed=0)`. It needs a
    seed, so that a run that goes on chooses the same points, and `max_points`.
    """

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        if type(self.first_points) is not int or self.first_points < 2:
            raise SweepError(
                f"first_points={self.first_points!r} must be a whole number from 2: the model of "
                "step times is fitted to them",
                word="first_points",
            )
        if not isinstance(self.least_gain, int | float) or not 0 < self.least_gain < 1:
            raise SweepError(
                f"least_gain={self.least_gain!r} must be above 0 and below 1: a share, such as "
                "0.002",
                word="least_gain",
            )
        most = self.max_points
        # A searcher of the user's has no first points.
        least, words = self.first_points, f"first_points={self.first_points}"
        if self.searcher is not None:
            least, words = 1, "1"
        if most is not None and (type(most) is not int or most < least):
            raise SweepError(
                f"max_points={most!r} must be a whole number from {words}", word="max_points"
            )
        if self.searcher is not None and not callable(self.searcher):
            raise SweepError(
                f"searcher={quoted(self.searcher)} must be a function that makes one: "
                "lambda: OptunaSearch(…)",
                word="searcher",
            )
        if self.searcher is not None and most is None:
            raise SweepError("a searcher of your own says no end: add max_points", word="searcher")

    def check(self, goal: Goal | None) -> None:
        """Refuse a goal whose objective does not follow from the step time.

        Raises:
            SweepError: it names the objective, and those that a search knows.
        """
        known = (*RATES, *TIMES, *PER_SAMPLE)
        if self.searcher is not None:
            return
        objective = goal and (goal.maximize or goal.minimize)
        if objective is not None and objective not in known:
            raise SweepError(
                f"a search can't find the best {objective}, which does not follow from the step "
                f"time; it knows {', '.join(known)}; leave search out to measure all points",
                word="search",
            )
