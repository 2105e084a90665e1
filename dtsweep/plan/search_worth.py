"""Worth of points for a search's question: expected gain, and chance to beat the answer.

Columns of points are functions of their step times, so conditions limit these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.metrics.rows import point_row
from dtsweep.plan.pruning import variables_text, workload_text
from dtsweep.plan.search_pool import Numbering, SearchPool, is_allowed, numbered
from dtsweep.predict.candidate_costs import Estimates, Objectives, frontier_of, latency_and_rate
from dtsweep.predict.gain import (
    chance_to_improve,
    chance_to_join,
    expected_gain,
    expected_improvement,
    most_of,
)
from dtsweep.predict.setups import Flags, Numbers, Prediction
from dtsweep.results.certificate import Certificate
from dtsweep.results.frames import trials_of_rows
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.search import PER_SAMPLE, RATES, TIMES
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import column_types

if TYPE_CHECKING:
    import pandas as pd

COULD_CHANCE = 0.01
"""Probability from which on the certificate counts a point as one that could beat the answer."""

_SHIFTS = np.linspace(-5.0, 5.0, 21)
"""Step times at which conditions are asked for, in standard deviations from the predicted one."""

_HALVINGS = 8
"""Bisections between the last step time that meets a condition and the next one."""

_WAYS = {
    "tokens_per_s": "give the workload `tokens_per_sample`",
    "energy_j_per_sample": "search on devices that report their energy",
    "usd_per_million_samples": "give the prices of the nodes",
}
"""Next steps where an objective is unknown, by its column."""


@dataclass(frozen=True, kw_only=True)
class FrontierWorth:
    """Worth for the frontiers of latency and rate: hypervolume."""

    objectives: Objectives

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected gains, as shares of the hypervolume of each one's group."""
        return expected_gain(self.objectives, estimates).share

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the shares."""
        return expected_gain(self.objectives, estimates).largest_share

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the frontier by more than a zone."""
        return chance_to_join(self.objectives, estimates, zone=zone)

    def has_answer(self, estimates: Estimates) -> bool:
        """True if a measured point meets the conditions."""
        return bool(frontier_of(self.objectives, estimates).any())


@dataclass(frozen=True, kw_only=True)
class _GoalWorth:
    """Worth for a goal: improvement of the best value of each group that meets the conditions."""

    cost: Numbers
    """(n,) logarithm of the cost at a step time of one second."""

    longest: Numbers
    """(n,) logarithm of the longest step time with which a point meets the conditions."""

    group: Numbering
    """(n,) number of the model and environment."""

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected improvements, as shares of the best value."""
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


Worth: TypeAlias = FrontierWorth | _GoalWorth
"""Worth of measuring a point."""


def certificate_of(worth: Worth, estimates: Estimates, *, zone: float, tried: int) -> Certificate:
    """Count the points without a measurement that could still beat the answer."""
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

    Raises:
        SweepError: no trial knows the objective, or the condition can't be read.
    """
    goal = None
    if sweep.question is not None:
        goal = sweep.question.goal
    models = _groups(pool)
    longest = np.full(len(pool.points), np.inf)
    if goal is not None and goal.where:
        longest = longest_steps(sweep, goal.where, pool=pool, study=study, prediction=prediction)
    longest[~is_allowed(sweep, pool)] = -np.inf
    if goal is not None and not goal.least_rate:
        objective = goal.minimize or goal.maximize or ""
        if not pool.trials[objective].notna().any():
            way = _WAYS.get(objective, "look at the reasons of the trials")
            raise SweepError(
                f"the search has no {objective} of any measured trial: {way}, or choose another "
                "goal",
                word="goal",
            )
        sign = -1.0 if objective in RATES else 1.0
        cost = sign * np.log(_at_one_second(pool, objective))
        return _GoalWorth(cost=cost, longest=longest, group=numbered(models))
    # The rate that such a goal asks for is a share of the best one, so it needs both ends.
    updates = [(point.semantics, point.update_kind) for point in pool.points]
    objectives = latency_and_rate(
        pool.setups.samples_per_step,
        latency_ratio=_ratio_to_step(pool, "latency_s"),
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


def _at_one_second(pool: SearchPool, name: str) -> Numbers:
    """(n,) value of a column at a step time of one second."""
    setups = pool.setups
    if name in RATES:
        return setups.samples_per_step * _ratio_to_step(pool, name, power=-1)
    if name in PER_SAMPLE:
        held = setups.nodes if name == "usd_per_million_samples" else setups.workers
        return held / setups.samples_per_step * _ratio_to_step(pool, name, held=held)
    return _ratio_to_step(pool, name)


def _ratio_to_step(
    pool: SearchPool, name: str, *, power: int = 1, held: Numbers | None = None
) -> Numbers:
    """(n,) ratio of a column to what follows from the step time alone.

    The measured one of each trial; of other points the median of those with the same mode.
    """
    log_step = np.log(pool.measured.step_s)
    expected = power * log_step
    samples = np.log(pool.measured_setups.samples_per_step)
    if power < 0:
        expected = expected + samples
    if held is not None:
        expected = expected + np.log(held[pool.rows]) - samples
    values = pool.trials[name].to_numpy("float64")
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values) - expected
    is_known = np.isfinite(logs)
    typical = 0.0
    if is_known.any():
        typical = np.median(logs[is_known])
    ratios = np.full(len(pool.points), typical)
    modes = np.array([point.sync for point in pool.points])
    for mode in np.unique(modes[pool.rows[is_known]]):
        of_mode = is_known & (modes[pool.rows] == mode)
        ratios[modes == mode] = np.median(logs[of_mode])
    ratios[pool.rows[is_known]] = logs[is_known]
    result: Numbers = np.exp(ratios)
    return result


def longest_steps(
    sweep: Sweep, where: str, *, pool: SearchPool, study: Study, prediction: Prediction
) -> Numbers:
    """(n,) logarithm of the longest step time with which a point meets a condition.

    Minus infinity where it meets it with none, infinity where any longer one meets it. What the
    step time says nothing of counts as met, until it was measured.
    """
    condition = study.condition(where)
    frame = _frame(sweep, pool, study)
    columns = _columns(pool, frame)

    def is_met_at(shifts: Numbers | float) -> Any:
        step_s = np.exp(prediction.log_step_s + shifts * prediction.error)
        predicted = {name: one * step_s**power for name, (one, power) in columns.items()}
        is_met = condition.holds(frame.assign(**predicted))
        return is_met.fillna(value=True).to_numpy("bool")

    last = np.full(len(pool.points), -np.inf)
    for shift in _SHIFTS:
        last[is_met_at(shift)] = shift
    is_inside = np.isfinite(last) & (last < _SHIFTS[-1])
    low = np.where(is_inside, last, _SHIFTS[0])
    high = low + _SHIFTS[1] - _SHIFTS[0]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_met = is_met_at(middle)
        low, high = np.where(is_met, middle, low), np.where(is_met, high, middle)
    longest = np.where(last == _SHIFTS[-1], np.inf, -np.inf)
    longest[is_inside] = (prediction.log_step_s + (low + high) / 2 * prediction.error)[is_inside]
    meets = condition.holds(study.points).fillna(value=True)
    for name, is_in in zip(study.points["point_id"], meets, strict=True):
        longest[pool.names[name]] = np.inf if is_in else -np.inf
    return longest


def _frame(sweep: Sweep, pool: SearchPool, study: Study) -> pd.DataFrame:
    """Settings of points as rows of `over_launches` have them, with its other columns null."""
    empty: dict[str, Any] = {column.name: None for column in TRIALS}
    rows = [
        {**empty, **point_row(sweep, point), "trial_id": name, "attempt_id": name}
        for point, name in zip(pool.points, pool.names, strict=True)
    ]
    frame = trials_of_rows(rows, workload_types=column_types(sweep.workload))
    return frame.reindex(columns=study.points.columns)


def _columns(pool: SearchPool, frame: pd.DataFrame) -> dict[str, tuple[Numbers, float]]:
    """Columns of a frame that follow from the step times: value at one second, and power.

    None that was not measured.
    """
    columns = {}
    for name in pool.trials.columns[pool.trials.notna().any()].intersection(frame.columns):
        if name in RATES:
            columns[name] = (_at_one_second(pool, name), -1.0)
        elif name in PER_SAMPLE or name in TIMES:
            columns[name] = (_at_one_second(pool, name), 1.0)
    return columns
