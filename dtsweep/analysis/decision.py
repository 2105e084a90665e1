"""Decision on the question of a sweep: whether more launches are needed, and of which points."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.candidates import read_goal, with_candidates
from dtsweep.analysis.dominance import PointCosts
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.objectives import Objective, cost_of, read_objectives
from dtsweep.analysis.recommend import candidates_of, comparison_in
from dtsweep.analysis.study import Study
from dtsweep.inference.spread import POINT, of_environment
from dtsweep.sweep.goal import Goal

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a question by the launches so far."""

    is_decided: bool
    """True if further launches would not change the answer."""
    open_points: frozenset[str]
    """Points (`point_id`) to launch again; none if it is decided."""


def decide(study: Study, goal: Goal | None) -> Decision:
    """Find out which points need another launch to answer a question.

    Each model and environment is a question of its own, and each semantics on frontiers.

    Args:
        study: of the trials so far, which say the zone and the confidence.
        goal: what counts; None asks which points are on the frontier.
    """
    if study.points.empty:
        return Decision(is_decided=True, open_points=frozenset())
    open_points = _open_of_frontier(study) if goal is None else _open_of_goal(study, goal)
    return Decision(is_decided=not open_points, open_points=frozenset(open_points))


def _open_of_goal(study: Study, goal: Goal) -> set[str]:
    """Contenders of each model and environment whose answer is open."""
    objective = read_goal(study.points, goal)
    condition = study.condition(goal.where)
    points = with_candidates(study.points, goal, objective, condition, zone=study.zone)
    found: set[str] = set()
    for _, group in points.groupby([*MODEL, "env_id"], dropna=False, sort=False):
        if not group["is_candidate"].any():
            continue
        compare = functools.partial(comparison_in, study, group["env_id"].iloc[0])
        narrowed, _, selection = candidates_of(group, goal, compare, study)
        if not selection.is_decided:
            rows = narrowed[narrowed["is_candidate"]]
            found |= set(rows["point_id"].iloc[selection.contenders])
    return found


def _open_of_frontier(study: Study) -> set[str]:
    """Points of which it is open whether they are on a frontier, and the points that may beat them.

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
            found |= set(group["point_id"].iloc[_open_places(costs, group)])
    return found


def _costs(study: Study, trials: pd.DataFrame, objectives: tuple[Objective, ...]) -> PointCosts:
    return PointCosts(
        tuple(cost_of(trials, objective) for objective in objectives),
        level=study.level,
        zone=study.zone,
    )


def _open_places(costs: PointCosts, points: pd.DataFrame) -> np.ndarray:
    """Places of the points that need another launch, among those of one frontier."""
    numbers = points["row"].to_numpy()
    if len(numbers) == 1:
        return np.array([], dtype=np.intp)
    is_off = costs.dominance_in_blocks(numbers, numbers).significant.any(axis=1)
    near = np.flatnonzero(~is_off)
    is_within = costs.dominance_in_blocks(numbers[near], numbers[near]).within_zone
    np.fill_diagonal(is_within, val=True)
    is_open = ~is_within.all(axis=1)
    may_beat = ~is_within[is_open].all(axis=0)
    return near[is_open | may_beat]
