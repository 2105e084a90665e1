"""Configuration for a goal, its certainty, and the alternatives that it gives up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.candidates import (
    narrowed,
    read_goal,
    unmeasured_of,
    why_none,
    with_candidates,
)
from dtsweep.analysis.dominance import Rows
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.launches import setting_columns
from dtsweep.analysis.objectives import Cost, Objective, read_objectives
from dtsweep.analysis.pairwise import PairTest, comparison_of
from dtsweep.analysis.study import Frame, study_of
from dtsweep.analysis.where import Condition
from dtsweep.errors import SweepError
from dtsweep.inference.power import power_of
from dtsweep.inference.spread import of_environment
from dtsweep.inference.verdicts import Certainty, ConditionVerdict
from dtsweep.sweep.goal import GOALS, Goal

if TYPE_CHECKING:
    import pandas as pd

Compare = Callable[[Objective], PairTest]
"""Comparison of the points of one environment by an objective."""

WORTH_A_WORKER = 0.05
"""Least gain in the means, as a share, for more workers, or for steps of twice the time, whose gain
is not significant.
"""

SHORTER = 0.5
"""Largest step time, relative to that of a better mean, at which the shorter step counts more."""


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
    `is_tied` is true if the recommended point is not significantly better. Of a tied one,
    `more_launches` is the number of further launches of both that would separate the two, null
    where over 100 are needed or launches were not tested.
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
    has_other_semantics: bool
    """True if points were left out because their updates are not allowed."""
    condition_columns: tuple[str, ...]
    """Columns of the goal's condition that are measured, not set."""
    undecided: pd.DataFrame
    """Other allowed points whose intervals hold a limit of the condition, best first.

    They may or may not meet it.
    """
    drift: float | None
    """Possible drift of the machine, from `drift_of`.

    None where no canaries were read that compare.
    """

    @property
    def tied(self) -> pd.DataFrame:
        """The other candidates that the recommended point is not significantly better than."""
        return self.others[self.others["is_tied"]]


def recommend(
    frame: Frame, goal: Goal = GOALS["throughput"], *, compare_models: bool = False
) -> list[Recommendation]:
    """Recommend one configuration for a goal, for each model and environment.

    Candidates have allowed semantics and a value of the objective, meet the condition and the
    goal's `least_rate`, and their numbers don't contradict each other; one worker with inexact
    updates is a candidate only where there is no other. No frontier is computed.

    The recommendation is the candidate with the fewest workers among those whose means are within
    5 % of the best one and that no other candidate significantly beats. Of several with as few
    workers it is the best one, or one with steps at most half as long.
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
    def compare(env_id: object, objective: Objective) -> PairTest:
        trials = of_environment(study.trials, env_id)
        shown = significant_drift(of_environment(study.canaries, env_id))
        return comparison_of(
            trials, objective, drift=study.drift(env_id), significant_drift=shown or 0.0
        )

    recommendations = []
    keys = ["env_id"] if compare_models else [*MODEL, "env_id"]
    ordered = points.sort_values("flops_per_sample", kind="stable")
    for _, group in ordered.groupby(keys, dropna=False, sort=False):
        if group["is_candidate"].any():
            compare_in_group = functools.partial(compare, group["env_id"].iloc[0])
            recommendations.append(_recommend_one(group, goal, condition, compare_in_group))
    return recommendations


def _recommend_one(
    points: pd.DataFrame, goal: Goal, condition: Condition, compare: Compare
) -> Recommendation:
    """Choose among the points of one model and environment."""
    points = narrowed(points, goal)
    rows = points[points["is_candidate"]]
    objective = read_goal(rows, goal)
    test = compare(objective)
    numbers = test.numbers_of(rows)
    place = _recommended_place(test, rows)
    chosen = rows.index[[place]]
    numbers = test.numbers_of(rows)
    excess = test.excess(numbers, numbers[[place]])
    order = rows.assign(
        mean_cost=test.cost.launches.point_means[numbers],
        is_tied=~(excess.estimate > excess.half_width),
        is_tested=excess.is_tested,
    )
    rivals = order.drop(index=chosen).sort_values("mean_cost", kind="stable")
    sure = Certainty.SINGLE_LAUNCH
    if rivals.empty:
        sure = Certainty.ONLY_CANDIDATE
    elif rivals["is_tied"].any():
        sure = Certainty.TIED
    elif rivals["is_tested"].all():
        sure = Certainty.SIGNIFICANT
    rivals["more_launches"] = _more_launches(test, rivals, rows.loc[chosen])
    rivals = rivals.drop(columns=["mean_cost", "is_tested"])
    ratios = {
        f"ratio{end}": values for end, values in test.ratios(rows.loc[chosen], rivals).items()
    }
    return Recommendation(
        goal=goal,
        objective=objective,
        point=rows.loc[chosen[0]],
        sure=sure,
        others=rivals.assign(**ratios).reset_index(drop=True),
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
        has_other_semantics=not points["is_allowed"].all(),
        condition_columns=tuple(
            name for name in condition.columns if name not in setting_columns(points)
        ),
        undecided=_undecided(points, chosen, objective),
        drift=test.drift,
    )


def _more_launches(
    test: PairTest, rivals: pd.DataFrame, chosen: pd.DataFrame
) -> pd.arrays.IntegerArray:
    """Further launches that would separate each tied candidate from the chosen one."""
    import pandas as pd

    cost = test.cost
    (reference,) = test.numbers_of(chosen)
    counts: list[int | None] = []
    for number, is_tied in zip(test.numbers_of(rivals), rivals["is_tied"], strict=True):
        pair = np.array([number]), np.array([reference])
        contrast = cost.contrasts(*pair)
        count = None
        if is_tied and not cost.is_exact and contrast.tested.all():
            power = power_of(
                contrast,
                cost.launches,
                number,
                reference,
                drift=float(test.drift_in(contrast, *pair)[0, 0]),
                drift_stays=bool(test.has_lasting_drift(contrast, *pair)[0, 0]),
            )
            count = power.more_launches
        counts.append(count)
    return pd.array(counts, dtype="Int64")


def _undecided(points: pd.DataFrame, chosen: pd.Index[int], objective: Objective) -> pd.DataFrame:
    """Other allowed points that may or may not meet the condition, best first."""
    is_undecided = points["condition_verdict"] == ConditionVerdict.UNDECIDED
    others = points[is_undecided & points["is_allowed"] & ~points["is_implausible"]]
    others = others.drop(index=chosen, errors="ignore").dropna(subset=[objective.name])
    ascending = not objective.maximize
    return others.sort_values(objective.name, ascending=ascending, kind="stable").reset_index(
        drop=True
    )


def _recommended_place(test: PairTest, rows: pd.DataFrame) -> int:
    """Position of the recommended one among the candidates of one model and environment."""
    numbers = test.numbers_of(rows)
    best = _best_place(test.cost, numbers)
    costs = test.cost.launches.point_means[numbers]
    margin = WORTH_A_WORKER
    if not test.objective.is_relative:
        margin *= abs(costs[best])
    # Of equal ones, as they are where what counts is set and not measured, the highest throughput.
    rates = rows["samples_per_s"].to_numpy("float64", na_value=0.0)
    workers = rows["workers"].to_numpy("float64")
    latency_s = rows["latency_s"].to_numpy("float64", na_value=np.nan)
    chosen, longest_s = None, np.inf
    for place in np.lexsort((-rates, costs, workers)):
        if chosen is not None and workers[place] > workers[chosen]:
            break
        is_candidate = costs[place] <= costs[best] + margin
        if chosen is not None:
            # Not at the price of throughput, which a goal of memory or energy does not ask for.
            is_candidate &= bool(latency_s[place] <= longest_s) and not test.objective.is_exact
            is_candidate &= bool(rates[place] >= (1 - WORTH_A_WORKER) * rates[chosen])
        if is_candidate and not _is_beaten(test, numbers, int(place)):
            chosen, longest_s = int(place), SHORTER * latency_s[place]
    if chosen is None:
        return best
    return chosen


def _is_beaten(test: PairTest, numbers: Rows, place: int) -> bool:
    """True if any of the points is significantly better than one of them."""
    excess = test.excess(numbers, numbers[[place]])
    return bool((excess.estimate < -excess.half_width).any())


def _best_place(cost: Cost, numbers: Rows) -> int:
    """Position of the least cost, unless shared launches show another point to be better."""
    costs = cost.launches.point_means[numbers]
    best = int(costs.argmin())
    for _ in range(len(numbers)):
        better = np.flatnonzero(cost.contrasts(numbers[[best]], numbers).greater[0])
        if not len(better):
            break
        best = int(better[costs[better].argmin()])
    return best


def _alternatives(
    points: pd.DataFrame, chosen: pd.DataFrame, objective: Objective, compare: Compare
) -> pd.DataFrame:
    """Points that are significantly better in some objective than the recommended one."""
    would_do = points["is_allowed"] | (points["is_met"] & ~points["is_slow"])
    pool = points[would_do & ~points["is_alone"] & ~points["is_implausible"]]
    pool = pool.dropna(subset=["latency_s", "samples_per_s"])
    objectives = read_objectives(points)
    tests = {item.name: compare(item) for item in (*objectives, objective)}
    rows, better = [], []
    for is_allowed, by in [*((True, item) for item in objectives), (False, objective)]:
        candidates = pool[pool["is_allowed"] == is_allowed].dropna(subset=[by.name])
        first = candidates.sort_values(by.name, ascending=not by.maximize, kind="stable").head(1)
        test = tests[by.name]
        numbers = test.numbers_of(first)
        chosen_numbers = test.numbers_of(chosen)
        if first.empty or (chosen_numbers < 0).any():
            continue
        excess = test.excess(chosen_numbers, numbers)
        if excess.estimate[0] > excess.half_width[0]:
            rows.append(first.index[0])
            better.append(by.name)
    alternatives = pool.loc[rows].assign(better=better)
    ratios = {
        f"{name}_ratio{end}": values
        for name, test in tests.items()
        for end, values in test.ratios(alternatives, chosen).items()
    }
    return alternatives.assign(**ratios).reset_index(drop=True)
