"""Questions of a report: its goal, a recommendation per model, and the points on frontiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dtsweep.analysis import recommend
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.report.remarks import Remark, remark
from dtsweep.sweep.goal import Goal

if TYPE_CHECKING:
    import pandas as pd


def goal_asked(study: Study, *, minimize: Sequence[str], maximize: Sequence[str]) -> Goal:
    """Goal of a report: its one objective; the results' goal where it has several."""
    if len((*minimize, *maximize)) != 1:
        return study.goal
    return Goal(minimize=next(iter(minimize), None), maximize=next(iter(maximize), None))


def recommended_in(
    study: Study, goal: Goal, *, where: str
) -> tuple[list[Recommendation], list[Remark]]:
    """Recommend a configuration for a goal, or say why there is none.

    Args:
        study: of the results.
        goal: the results' goal, or what a report is asked for.
        where: a condition that points have to meet in addition to the goal's own.
    """
    conditions = [condition for condition in (goal.where, where) if condition]
    if len(conditions) > 1:
        conditions = [f"({condition})" for condition in conditions]
    goal = replace(goal, where=" and ".join(conditions))
    try:
        return recommend(study, goal), []
    except SweepError as error:
        return [], [remark("no_recommendation", reason=str(error))]


def frontier_answer(study: Study, points: pd.DataFrame) -> list[Remark]:
    """Count the points that are on the frontier and the open ones, where that was asked.

    Args:
        study: of the results.
        points: rows of `frontier`.
    """
    if study.question is None or study.question.goal is not None:
        return []
    judged = points[points["standing"].notna()]
    is_open = judged["is_open"].astype("bool")
    launches = int(judged.loc[is_open, "launches"].max()) if is_open.any() else 0
    first = remark(
        "on_frontier",
        settled=(judged["on_frontier"] & ~is_open).sum(),
        open=is_open.sum(),
        points=len(judged),
        zone=study.zone,
        confidence=study.confidence,
        launches=launches,
    )
    if not is_open.any():
        return [first]
    if launches < study.question.max_launches:
        return [first, remark("frontier_again")]
    return [first, remark("frontier_goes_on", max_launches=launches + 2)]
