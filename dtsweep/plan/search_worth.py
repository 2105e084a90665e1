"""Worth of points for a search's question: expected gain, and chance to beat the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dtsweep.plan.search_pool import Numbering, SearchPool, numbered
from dtsweep.sweep.goal import Goal
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.search import PER_SAMPLE, RATES, TIMES
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import column_types, workload_fields

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.study import Study
    from dtsweep.model.setups import Numbers, Prediction
    from dtsweep.search.objectives import Estimates, Objectives

SHIFTS = np.linspace(-3.0, 3.0, 13)
"""Step times at which conditions are asked for, in standard deviations from the predicted one."""


class Worth(Protocol):
    """Worth of measuring a point."""

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected gains."""

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the gains as a share of what is reached."""

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the answer by more than a zone."""


@dataclass(frozen=True, kw_only=True)
class FrontierWorth:
    """Worth for the frontiers of latency and rate: hypervolume."""

    objectives: Objectives

    def gain_of(self, estimates: Estimates) -> Numbers:
        """(n,) expected gains of hypervolume."""
        from dtsweep.search.gain import expected_gain

        return expected_gain(self.objectives, estimates).gain

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the gains as a share of the hypervolume."""
        from dtsweep.search.gain import expected_gain

        return expected_gain(self.objectives, estimates).largest_share

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the frontier by more than a zone."""
        from dtsweep.search.certificate import chance_to_join

        return chance_to_join(self.objectives, estimates, zone=zone)


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

        gains = np.zeros(len(self.cost))
        for number in np.unique(self.group):
            is_member = self.group == number
            gain = expected_improvement(
                self.cost,
                estimates,
                best=self._best(estimates, is_member),
                most_log_step_s=self.longest,
            )
            gains = np.where(is_member, gain, gains)
        return gains

    def largest_share(self, estimates: Estimates) -> float:
        """Largest of the improvements."""
        return float(self.gain_of(estimates).max(initial=0.0))

    def chances(self, estimates: Estimates, *, zone: float) -> Numbers:
        """(n,) probabilities to beat the best value by more than a zone."""
        from dtsweep.search.certificate import chance_to_improve

        chances = np.zeros(len(self.cost))
        for number in np.unique(self.group):
            is_member = self.group == number
            chance = chance_to_improve(
                self.cost,
                estimates,
                best=self._best(estimates, is_member),
                most_log_step_s=self.longest,
                zone=zone,
            )
            chances = np.where(is_member, chance, chances)
        return chances

    def _best(self, estimates: Estimates, is_member: Any) -> float:
        """Least cost of a group: of what meets the conditions, else the largest of interest."""
        costs = self.cost + estimates.log_step_s
        is_met = estimates.log_step_s <= self.longest
        met = costs[is_member & estimates.is_measured & is_met]
        if len(met):
            return float(met.min())
        return float(costs[is_member].max())


def worth_of(
    sweep: Sweep, pool: SearchPool, study: Study, prediction: Prediction
) -> tuple[Worth, Numbers]:
    """Make the worth of points for the sweep's question, and (n,) factors of their chances.

    Points whose updates the goal does not allow have the factor 0.

    Args:
        sweep: with the question.
        pool: of its points.
        study: of the trials so far.
        prediction: of the step times of all points.
    """
    from dtsweep.search.objectives import latency_and_rate

    goal = sweep.question.goal if sweep.question is not None else None
    semantics = [point.semantics for point in pool.points]
    models = _groups(pool)
    if goal is None or goal.least_rate:
        # The rate that such a goal asks for is a share of the best one, so it needs both ends.
        objectives = latency_and_rate(
            pool.setups.samples_per_step,
            latency_ratio=_ratio(pool, "latency_s"),
            group=numbered(zip(semantics, models, strict=True)),
        )
        worth: Worth = FrontierWorth(objectives=objectives)
    else:
        objective = goal.minimize or goal.maximize or ""
        sign = -1.0 if objective in RATES else 1.0
        worth = GoalWorth(
            cost=sign * np.log(_at_one_second(pool, objective)),
            longest=_longest(sweep, goal, pool, study, prediction),
            group=numbered(models),
        )
    allowed = set(SEMANTICS)
    if goal is not None:
        allowed = {"exact", *goal.allow}
    return worth, np.array([float(one in allowed) for one in semantics])


def _groups(pool: SearchPool) -> list[tuple[str, str]]:
    """Model and variables of each point: points of two groups are no substitute for each other."""
    workloads = [
        json.dumps(workload_fields(point.workload), sort_keys=True, default=str)
        for point in pool.points
    ]
    # Fields of a workload may leave its model unchanged.
    digests = pool.trials["model_digest"].fillna("")
    models = {workloads[row]: digest for row, digest in zip(pool.rows, digests, strict=True)}
    variables = [json.dumps(dict(point.environment), sort_keys=True) for point in pool.points]
    return [
        (models.get(workload) or workload, own)
        for workload, own in zip(workloads, variables, strict=True)
    ]


def _at_one_second(pool: SearchPool, name: str) -> Numbers:
    """(n,) value of a column at a step time of one second."""
    setups = pool.setups
    if name in RATES:
        return setups.samples_per_step * _ratio(pool, name, power=-1)
    if name in PER_SAMPLE:
        held = setups.nodes if name == "usd_per_million_samples" else setups.workers
        return held / setups.samples_per_step * _ratio(pool, name, held=held)
    return _ratio(pool, name)


def _ratio(pool: SearchPool, name: str, *, power: int = 1, held: Numbers | None = None) -> Numbers:
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
    ratios = np.full(len(pool.points), np.median(logs[is_known]) if is_known.any() else 0.0)
    modes = np.array([point.sync for point in pool.points])
    for mode in np.unique(modes[pool.rows[is_known]]):
        of_mode = is_known & (modes[pool.rows] == mode)
        ratios[modes == mode] = np.median(logs[of_mode])
    ratios[pool.rows[is_known]] = logs[is_known]
    result: Numbers = np.exp(ratios)
    return result


def _longest(
    sweep: Sweep, goal: Goal, pool: SearchPool, study: Study, prediction: Prediction
) -> Numbers:
    """(n,) logarithm of the longest step time with which a point meets the goal's condition.

    Minus infinity where it meets it with none. What the step time says nothing of counts as met,
    until it was measured.
    """
    longest = np.full(len(pool.points), -np.inf)
    condition = study.condition(goal.where)
    frame = _frame(sweep, pool, study)
    for shift in SHIFTS:
        log_step = prediction.log_step_s + shift * prediction.error
        predicted = frame.assign(**_predicted(pool, frame, np.exp(log_step)))
        is_met = condition.holds(predicted).fillna(value=True).to_numpy("bool")
        longest[is_met] = log_step[is_met]
    longest[is_met] = np.inf
    meets = condition.holds(study.points).fillna(value=True)
    for name, is_in in zip(study.points["point_id"], meets, strict=True):
        longest[pool.names[name]] = np.inf if is_in else -np.inf
    return longest


def _frame(sweep: Sweep, pool: SearchPool, study: Study) -> pd.DataFrame:
    """Settings of points as rows of `over_launches` have them, with its other columns null."""
    from dtsweep.metrics.rows import point_row
    from dtsweep.results.schema import TRIALS
    from dtsweep.results.store import trials_of_rows

    empty: dict[str, Any] = {column.name: None for column in TRIALS}
    rows = [
        {**empty, **point_row(sweep, point), "trial_id": name, "attempt_id": name}
        for point, name in zip(pool.points, pool.names, strict=True)
    ]
    frame = trials_of_rows(rows, workload_types=column_types(sweep.workload))
    return frame.reindex(columns=study.points.columns)


def _predicted(pool: SearchPool, frame: pd.DataFrame, step_s: Numbers) -> dict[str, Numbers]:
    """Columns of a frame that follow from the step times, by name; none that were not measured."""
    columns = {}
    for name in pool.trials.columns[pool.trials.notna().any()].intersection(frame.columns):
        if name in RATES:
            columns[name] = _at_one_second(pool, name) / step_s
        elif name in PER_SAMPLE or name in TIMES:
            columns[name] = _at_one_second(pool, name) * step_s
    return columns
