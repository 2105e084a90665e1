"""Decision on the question of a sweep: the points that need more launches."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.candidates import read_goal, with_candidates
from dtsweep.analysis.dominance import PointCosts, compare, places_to_launch
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.limits import variances_of
from dtsweep.analysis.objectives import Objective, cost_of, read_objectives
from dtsweep.analysis.recommend import candidates_of, comparison_in
from dtsweep.analysis.study import Study
from dtsweep.inference.selection import points_to_launch
from dtsweep.inference.spread import POINT, of_environment
from dtsweep.inference.windows import Variances
from dtsweep.results.store import trials_of_rows
from dtsweep.sweep.goal import Goal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a question by the launches so far."""

    open_points: frozenset[str]
    """Points (`point_id`) to launch again; none if the question is decided."""
    variances: Variances | None
    """Of the open points; None if their launches don't show them."""

    @property
    def is_decided(self) -> bool:
        """True if further launches would not change the answer."""
        return not self.open_points


def decide(study: Study, goal: Goal | None) -> Decision:
    """Find out which points need another launch to answer a question.

    Each model and environment is a question of its own, and each semantics on frontiers.

    Args:
        study: of the trials so far, which say the zone and the confidence.
        goal: what counts; None asks which points are on the frontier.

    Raises:
        SweepError: the goal can't be read.
    """
    open_points: set[str] = set()
    of = "samples_per_s"
    if not study.points.empty and goal is None:
        open_points = _open_of_frontier(study)
    elif not study.points.empty and goal is not None:
        open_points = _open_of_goal(study, goal)
        of = read_goal(study.points, goal).name
    return Decision(
        open_points=frozenset(open_points), variances=variances_of(study, open_points, of=of)
    )


def check_goal(goal: Goal) -> None:
    """Refuse a goal whose columns results don't have, before anything is measured.

    Raises:
        SweepError: it names what is not a column, or its condition can't be read.
    """
    study = Study(trials_of_rows([], workload_types={}))
    names = [name for name in (goal.maximize, goal.minimize) if name is not None]
    unknown = [name for name in names if name not in study.points.columns]
    if unknown:
        read_goal(study.points, goal)
    if "workload" not in goal.where and "env." not in goal.where:
        study.condition(goal.where)


def _open_of_goal(study: Study, goal: Goal) -> set[str]:
    """Contenders of each model and environment whose answer is open."""
    objective = read_goal(study.points, goal)
    condition = study.condition(goal.where)
    points = with_candidates(
        study.points, goal, objective, condition, zone=study.zone, level=study.level
    )
    found: set[str] = set()
    for _, group in points.groupby([*MODEL, "env_id"], dropna=False, sort=False):
        if not group["is_candidate"].any():
            continue
        compare = functools.partial(comparison_in, study, group["env_id"].iloc[0])
        narrowed, _, selection = candidates_of(group, goal, compare, study)
        rows = narrowed[narrowed["is_candidate"]]
        found |= set(rows["point_id"].iloc[points_to_launch(selection)])
    return found


def _open_of_frontier(study: Study) -> set[str]:
    """Points that may or may not be on a frontier, and the points that may beat them.

    A point is on it if no other one beats it by more than the indifference zone, and off it if one
    beats it significantly, as in the identification of Pareto sets by Auer et al. (2016).
    """
    objectives = read_objectives(study.points)
    found: set[str] = set()
    for env_id in study.points["env_id"].drop_duplicates():
        trials = of_environment(study.trials, env_id)
        trials = trials.dropna(subset=[objective.name for objective in objectives])
        costs = _costs(study, trials, objectives)
        launch_rows = costs.costs[0].launches.points.reset_index(names="row")
        points = of_environment(study.points, env_id).merge(launch_rows, on=list(POINT))
        for _, group in points.groupby(["semantics", *MODEL], dropna=False, sort=False):
            numbers = group["row"].to_numpy()
            open_places, rivals = places_to_launch(costs, numbers, compare(costs, numbers)[0])
            found |= set(group["point_id"].iloc[np.union1d(open_places, rivals)])
    return found


def _costs(study: Study, trials: pd.DataFrame, objectives: tuple[Objective, ...]) -> PointCosts:
    return PointCosts(
        tuple(cost_of(trials, objective) for objective in objectives),
        level=study.level,
        zone=study.zone,
    )
