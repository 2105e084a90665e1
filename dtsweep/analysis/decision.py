"""Decision on the question of a sweep: the points that need more launches."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from dtsweep.analysis.candidates import read_goal
from dtsweep.analysis.dominance import compare, places_to_launch
from dtsweep.analysis.frontier import MODEL, UPDATE, costs_in
from dtsweep.analysis.objectives import read_objectives
from dtsweep.analysis.recommend import is_futile_in, rounds_of, selections_in
from dtsweep.analysis.study import Study
from dtsweep.inference.selection import points_to_launch
from dtsweep.inference.spread import of_environment
from dtsweep.results.frames import trials_of_rows
from dtsweep.sweep.goal import Goal


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Open part of a question."""

    open_points: frozenset[str] = frozenset()
    """Points (`point_id`) to launch again; none if the question is decided."""
    rounds: float | None = None
    """Further rounds that decide, as `Recommendation.rounds_to_decide`; None of a frontier."""


def decide(study: Study, goal: Goal | None) -> Decision:
    """Find the points to launch again, and how often.

    Each model and environment is a question of its own, and each kind of update on frontiers.

    Args:
        study: of the trials so far, which say the zone and the confidence.
        goal: what counts; None asks which points are on the frontier.

    Raises:
        SweepError: the goal can't be read.
    """
    if study.points.empty:
        return Decision()
    if goal is None:
        return Decision(open_points=frozenset(_open_of_frontier(study)))
    # Contenders of each model and environment whose answer is open, and can be found here.
    found: set[str] = set()
    rounds: list[float | None] = []
    for candidates, selection in selections_in(study, goal):
        points = points_to_launch(selection)
        if len(points) and not is_futile_in(study, candidates, selection):
            found |= set(candidates["point_id"].iloc[points])
            rounds.append(rounds_of(selection))
    known = [count for count in rounds if count is not None]
    is_known = len(known) == len(rounds)
    return Decision(
        open_points=frozenset(found), rounds=max(known, default=0) if is_known else None
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


def asks_for_cost(goal: Goal) -> bool:
    """True if a goal, or its condition, reads a column that needs prices of nodes."""
    return re.search(r"\b(usd_\w+|cost_usd|cost)\b", goal.columns_text) is not None


def _open_of_frontier(study: Study) -> set[str]:
    """Points that may or may not be on a frontier, and the points that may beat them.

    A point is on it if no other one beats it by more than the indifference zone, and off it if one
    beats it significantly, as in the identification of Pareto sets by Auer et al. (2016).
    """
    objectives = read_objectives(study.points)
    found: set[str] = set()
    for env_id in study.points["env_id"].drop_duplicates():
        costs, points = costs_in(study, of_environment(study.points, env_id), objectives)
        for _, group in points.groupby([*UPDATE, *MODEL], dropna=False, sort=False):
            numbers = group["row"].to_numpy()
            open_places, rivals = places_to_launch(costs, numbers, compare(costs, numbers))
            found |= set(group["point_id"].iloc[np.union1d(open_places, rivals)])
    return found
