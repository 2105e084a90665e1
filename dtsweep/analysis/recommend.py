"""Configuration for a goal, its certainty, and the alternatives that it gives up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.candidates import (
    narrowed,
    read_goal,
    unmeasured_of,
    why_none,
    with_candidates,
)
from dtsweep.analysis.dominance import Rows
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.objectives import Cost, Objective, read_objectives
from dtsweep.analysis.pairwise import PairTest, comparison_of
from dtsweep.analysis.study import Frame, study_of
from dtsweep.analysis.where import Condition
from dtsweep.errors import SweepError
from dtsweep.inference.spread import of_environment
from dtsweep.inference.verdicts import Certainty
from dtsweep.sweep.goal import GOALS, Goal

if TYPE_CHECKING:
    import pandas as pd

Compare = Callable[[Objective], PairTest]
"""Comparison of the points of one environment by an objective."""

WORTH_A_WORKER = 0.05
"""Least gain in the means, as a share, for more workers whose gain is not significant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recommendation:
    """One configuration for a goal, of one model and environment."""

    goal: Goal
    objective: Objective
    point: pd.Series[Any]
    """Row of `over_launches`."""
    sure: Certainty
    """Certainty of the recommendation by its launches."""
    others: pd.DataFrame
    """Other candidates, best first, as rows of `over_launches` with the columns below.

    `ratio` is the objective of the recommended point divided by theirs (minus theirs where it may
    be 0 or negative). `ratio_low` and `ratio_high` are its 95 % interval, null without a test.
    `is_tied` is true if the candidate does not differ significantly from the best one.
    """
    alternatives: pd.DataFrame
    """Points that are better by another column, or whose updates are not allowed.

    Rows of `over_launches` with `better`, the column by which the point was chosen, `is_allowed`,
    and `<column>_ratio` of `latency_s` and of `samples_per_s`: the point's value over that of the
    recommended one, with `_low` and `_high`, null if there is no test.
    """
    unknown: int
    """Points left out because what is asked for was not measured."""
    unmeasured: tuple[str, ...]
    """The columns asked for that these lack."""
    slow: int
    """Points left out because their rate is below the goal's `least_rate`."""
    implausible: int
    """Points left out because their numbers contradict each other."""
    drift: float | None
    """Possible drift of the machine, from `drift_of`.

    None where no canaries were read that compare.
    """

    @property
    def tied(self) -> pd.DataFrame:
        """The other candidates that are not significantly different from the best one."""
        return self.others[self.others["is_tied"]]


def recommend(
    frame: Frame, goal: Goal = GOALS["throughput"], *, compare_models: bool = False
) -> list[Recommendation]:
    """Recommend one configuration for a goal, for each model and environment.

    Candidates have allowed semantics and a value of the objective, meet the condition and the
    goal's `least_rate`, and their numbers don't contradict each other; one worker with inexact
    updates is a candidate only where there is no other. No frontier is computed.

    The recommendation is the candidate with the fewest workers, of several the best, among those
    close to the best one: not significantly different from it, and with means within 5 % of it.
    Differences are tested by `inference.contrasts`; with one launch each, by the intervals within
    them and the machine's drift, not at all where that is unknown.

    Args:
        frame: one row per trial, as `dtsweep.load(results, canaries=True)` gives it, or a study of
            it.
        goal: what counts.
        compare_models: compare all models with each other.

    Returns:
        The one of the smallest model (fewest FLOPs) first.

    Raises:
        SweepError: no point is a candidate, or the goal can't be read.
    """
    study = study_of(frame)
    objective = read_goal(study.points, goal)
    condition = study.condition(goal.where)
    points = with_candidates(study.points, goal, objective, condition)
    if not points["is_candidate"].any():
        raise SweepError(why_none(points, objective, condition))

    @functools.cache
    def compare(env_id: object, each: Objective) -> PairTest:
        return comparison_of(of_environment(study.trials, env_id), each, drift=study.drift(env_id))

    found = []
    ordered = points.sort_values("flops_per_sample", kind="stable")
    for _, there in ordered.groupby(
        [*(() if compare_models else MODEL), "env_id"], dropna=False, sort=False
    ):
        if there["is_candidate"].any():
            found.append(
                _recommended(
                    there, goal, condition, functools.partial(compare, there["env_id"].iloc[0])
                )
            )
    return found


def _recommended(
    points: pd.DataFrame, goal: Goal, condition: Condition, compare: Compare
) -> Recommendation:
    """Choose among the points of one model and environment."""
    points = narrowed(points, goal)
    rows = points[points["is_candidate"]]
    objective = read_goal(rows, goal)
    known = compare(objective)
    numbers = known.numbers_of(rows)
    centres = known.cost.launches.centres
    best = _best(known.cost, numbers)
    over = known.excess(numbers, numbers[[best]])
    is_tied = ~(over.estimate > over.half_width)
    is_tied[best] = over.is_tested[best] = True
    order = rows.assign(centre=centres[numbers], is_tied=is_tied)
    worth = WORTH_A_WORKER * (1.0 if objective.is_relative else abs(centres[numbers[best]]))
    near = order[order["is_tied"] & (order["centre"] <= centres[numbers[best]] + worth)]
    # Of equal ones, as they are where what counts is set and not measured, the highest throughput.
    near = near.sort_values("samples_per_s", ascending=False, kind="stable")
    chosen = near.sort_values(["workers", "centre"], kind="stable").index[:1]
    others = order.drop(index=chosen).sort_values("centre", kind="stable").drop(columns="centre")
    ratios = {
        f"ratio{end}": values for end, values in known.ratios(rows.loc[chosen], others).items()
    }
    sure = Certainty.SINGLE_LAUNCH
    if others.empty:
        sure = Certainty.ONLY_CANDIDATE
    elif is_tied.sum() > 1:
        sure = Certainty.TIED
    elif over.is_tested.all():
        sure = Certainty.SIGNIFICANT
    return Recommendation(
        goal=goal,
        objective=objective,
        point=rows.loc[chosen[0]],
        sure=sure,
        others=others.assign(**ratios).reset_index(drop=True),
        alternatives=_alternatives(points, points.loc[chosen], objective, compare),
        unknown=int((points["is_unknown"] & points["is_allowed"]).sum()),
        unmeasured=unmeasured_of(points, objective, condition),
        slow=int(
            (
                points["is_slow"]
                & points["is_allowed"]
                & points["is_met"]
                & ~points["is_implausible"]
            ).sum()
        ),
        implausible=int((points["is_implausible"] & points["is_allowed"]).sum()),
        drift=known.drift,
    )


def _best(cost: Cost, numbers: Rows) -> int:
    """Position of the least cost, unless shared launches show another point to be better."""
    best = int(cost.launches.centres[numbers].argmin())
    for _ in range(len(numbers)):
        found = cost.contrasts(numbers[[best]], numbers)
        worse_than = np.flatnonzero(found.greater[0])
        if not len(worse_than):
            break
        best = int(worse_than[cost.launches.centres[numbers[worse_than]].argmin()])
    return best


def _alternatives(
    points: pd.DataFrame, chosen: pd.DataFrame, objective: Objective, compare: Compare
) -> pd.DataFrame:
    """Points that are significantly better in some objective than the recommended one."""
    would_do = points["is_allowed"] | (points["is_met"] & ~points["is_slow"])
    pool = points[would_do & ~points["is_alone"] & ~points["is_implausible"]]
    pool = pool.dropna(subset=["latency_s", "samples_per_s"])
    both = read_objectives(points)
    known = {each.name: compare(each) for each in (*both, objective)}
    rows, better = [], []
    for is_allowed, each in [*((True, each) for each in both), (False, objective)]:
        there = pool[pool["is_allowed"] == is_allowed].dropna(subset=[each.name])
        first = there.sort_values(each.name, ascending=not each.maximize, kind="stable").head(1)
        numbers, own = (known[each.name].numbers_of(some) for some in (first, chosen))
        if first.empty or (own < 0).any():
            continue
        over = known[each.name].excess(own, numbers)
        if over.estimate[0] > over.half_width[0]:
            rows.append(first.index[0])
            better.append(each.name)
    kept = pool.loc[rows].assign(better=better)
    ratios = {
        f"{name}_ratio{end}": r
        for name, each in known.items()
        for end, r in each.ratios(kept, chosen).items()
    }
    return kept.assign(**ratios).reset_index(drop=True)
