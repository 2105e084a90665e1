"""Worth of points for a search's question: expected gain, and chance to beat the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dtsweep.plan.pruning import variables_text, workload_text
from dtsweep.plan.search_columns import (
    at_one_second,
    known_objective,
    longest_steps,
    ratio_to_step,
)
from dtsweep.plan.search_pool import (
    Numbering,
    SearchPool,
    is_allowed,
    numbered,
)
from dtsweep.results.certificate import Certificate
from dtsweep.sweep.search import RATES
from dtsweep.sweep.settings import Sweep

if TYPE_CHECKING:
    from dtsweep.analysis.study import Study
    from dtsweep.model.setups import Flags, Numbers, Prediction
    from dtsweep.search.objectives import Estimates, Objectives


COULD_CHANCE = 0.01
"""Probability from which on the certificate counts a point as one that could beat the answer."""


@dataclass(frozen=True, kw_only=True)
class FrontierWorth:
    """Worth for the frontiers of latency and rate: hypervolume."""

    objectives: Objectives

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected gains, as shares of the hypervolume of each one's group."""
        from dtsweep.search.gain import expected_gain

        return expected_gain(self.objectives, estimates).share

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the shares."""
        from dtsweep.search.gain import expected_gain

        return expected_gain(self.objectives, estimates).largest_share

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the frontier by more than a zone."""
        from dtsweep.search.chances import chance_to_join

        return chance_to_join(self.objectives, estimates, zone=zone)

    def has_answer(self, estimates: Estimates) -> bool:
        """True if a measured point meets the conditions."""
        from dtsweep.search.objectives import frontier_of

        return bool(frontier_of(self.objectives, estimates).any())


@dataclass(frozen=True, kw_only=True)
class GoalWorth:
    """Worth for a goal: improvement of the best value of each group that meets the conditions."""

    cost: Numbers
    """(n,) logarithm of the cost at a step time of one second."""

    longest: Numbers
    """(n,) logarithm of the longest step time with which a point meets the conditions."""

    group: Numbering
    """(n,) number of the model and environment."""

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected improvements, as shares of the best value."""
        from dtsweep.search.gain import expected_improvement

        best = self._best(estimates)
        # Where nothing meets the conditions so far: the worst cost of interest.
        best = np.where(np.isfinite(best), best, self._of_group(np.max, estimates, -np.inf))
        return expected_improvement(self.cost, estimates, best=best, most_log_step_s=self.longest)

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the improvements."""
        return float(self.gain_of(estimates).max(initial=0.0))

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the best value by more than a zone.

        Where nothing meets the conditions so far, to meet them.
        """
        from dtsweep.search.chances import chance_to_improve

        return chance_to_improve(
            self.cost,
            estimates,
            best=self._best(estimates),
            most_log_step_s=self.longest,
            zone=zone,
        )

    def has_answer(self, estimates: Estimates) -> bool:
        """True if a measured point meets the conditions."""
        return bool(self._is_answer(estimates).any())

    def _is_answer(self, estimates: Estimates) -> Flags:
        is_answer: Flags = estimates.is_measured & (estimates.log_step_s <= self.longest)
        return is_answer

    def _best(self, estimates: Estimates) -> Numbers:
        """(n,) least cost of each group's points that meet the conditions; infinite without."""
        return self._of_group(np.min, estimates, np.inf, among=self._is_answer(estimates))

    def _of_group(
        self, reduce: Any, estimates: Estimates, initial: float, *, among: Flags | bool = True
    ) -> Numbers:
        """(n,) least or largest cost of each one's group."""
        costs = np.where(among, self.cost + estimates.log_step_s, initial)
        of_group = np.empty(len(costs))
        for number in np.unique(self.group):
            is_member = self.group == number
            of_group[is_member] = reduce(costs[is_member])
        return of_group


Worth: TypeAlias = FrontierWorth | GoalWorth
"""Worth of measuring a point."""


def certificate_of(worth: Worth, estimates: Estimates, *, zone: float, tried: int) -> Certificate:
    """Count the points without a measurement that could still beat the answer.

    Args:
        worth: for the question.
        estimates: of the step times of all points.
        zone: share by which a point has to be better.
        tried: points of which a trial has ended.
    """
    from dtsweep.search.chances import most_of

    could = worth.chances(estimates, zone=zone)
    return Certificate(
        measured=tried,
        points=len(could),
        could_beat=int((could >= COULD_CHANCE).sum()),
        chance=float(could.max(initial=0.0)),
        expected=float(could.sum()),
        most=most_of(could),
        least_chance=COULD_CHANCE,
        zone=zone,
        gain=worth.largest_share(estimates),
        is_frontier=isinstance(worth, FrontierWorth),
        has_answer=worth.has_answer(estimates),
    )


def worth_of(sweep: Sweep, pool: SearchPool, study: Study, prediction: Prediction) -> Worth:
    """Make the worth of points for the sweep's question.

    A point whose updates the goal does not allow meets its conditions with no step time.

    Args:
        sweep: with the question.
        pool: of its points.
        study: of the trials so far.
        prediction: of the step times of all points.

    Raises:
        SweepError: no trial knows the objective, or the condition can't be read.
    """
    from dtsweep.search.objectives import latency_and_rate

    goal = sweep.question.goal if sweep.question is not None else None
    models = _groups(pool)
    longest = np.full(len(pool.points), np.inf)
    if goal is not None and goal.where:
        longest = longest_steps(sweep, goal.where, pool=pool, study=study, prediction=prediction)
    longest[~is_allowed(sweep, pool)] = -np.inf
    if goal is not None and not goal.least_rate:
        objective = known_objective(pool, goal.minimize or goal.maximize or "")
        sign = -1.0 if objective in RATES else 1.0
        cost = sign * np.log(at_one_second(pool, objective))
        return GoalWorth(cost=cost, longest=longest, group=numbered(models))
    # The rate that such a goal asks for is a share of the best one, so it needs both ends.
    updates = [(point.semantics, point.update_kind) for point in pool.points]
    objectives = latency_and_rate(
        pool.setups.samples_per_step,
        latency_ratio=ratio_to_step(pool, "latency_s"),
        group=numbered(zip(updates, models, strict=True)),
    )
    return FrontierWorth(objectives=replace(objectives, longest=longest))


def _groups(pool: SearchPool) -> list[tuple[str, str]]:
    """Model and variables of each point: points of two groups are no substitute for each other."""
    workloads = [workload_text(point) for point in pool.points]
    # Fields of a workload may leave its model unchanged.
    digests = pool.trials["model_digest"].fillna("")
    models = {workloads[row]: digest for row, digest in zip(pool.rows, digests, strict=True)}
    variables = [variables_text(point) for point in pool.points]
    return [
        (models.get(workload) or workload, own)
        for workload, own in zip(workloads, variables, strict=True)
    ]
