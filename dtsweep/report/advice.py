"""Advice of a report, in sentences: a configuration per model, its limit and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dtsweep.analysis import recommend
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.report.bounds import bounds_sentence, next_words
from dtsweep.report.frontiers import Frontier
from dtsweep.report.recommendation import in_words, names_of
from dtsweep.sweep.goal import Goal
from dtsweep.text import count_of, percent

if TYPE_CHECKING:
    import pandas as pd


def goal_asked(study: Study, *, minimize: Sequence[str], maximize: Sequence[str]) -> Goal:
    """Goal of a report: its one objective; that of the results where it has several."""
    if len((*minimize, *maximize)) != 1:
        return study.goal
    return Goal(minimize=next(iter(minimize), None), maximize=next(iter(maximize), None))


def recommended_in(
    study: Study, goal: Goal, *, where: str, compare_models: bool
) -> tuple[list[Recommendation], str]:
    """Recommend a configuration for a goal, or say why there is none.

    Args:
        study: of the results.
        goal: that of the results, or what a report is asked for.
        where: a condition that points have to meet in addition to that of the goal.
        compare_models: compare all models with each other.
    """
    conditions = [condition for condition in (goal.where, where) if condition]
    if len(conditions) > 1:
        conditions = [f"({condition})" for condition in conditions]
    goal = replace(goal, where=" and ".join(conditions))
    try:
        return recommend(study, goal, compare_models=compare_models), ""
    except SweepError as error:
        return [], f"No recommendation: {error}."


def advice_on(recommendations: Sequence[Recommendation], varying: Sequence[str]) -> list[list[str]]:
    """Put recommendations into sentences; each is named if there are several."""
    names = names_of(recommendations)
    return [
        in_words(recommendation, varying=varying, name=name, named=1)
        for recommendation, name in zip(recommendations, names, strict=True)
    ]


def frontier_answer(study: Study, points: pd.DataFrame) -> str:
    """Say which points are on the frontier and which are open, where that was asked.

    Args:
        study: of the results.
        points: rows of `frontier`.
    """
    if study.question is None or study.question.goal is not None:
        return ""
    judged = points[points["standing"].notna()]
    is_open = judged["is_open"].astype("bool")
    settled = int((judged["on_frontier"] & ~is_open).sum())
    counted = (
        f"Frontier: {settled} of {count_of(len(judged), 'point')} "
        f"{'is' if settled == 1 else 'are'} on it, each within "
        f"{percent(study.zone)}"
    )
    if not is_open.any():
        others = "; all others are off it"
        if settled == len(judged):
            others = ""
        return f"{counted}{others} ({percent(study.confidence)} confidence each)."
    launches = int(judged.loc[is_open, "launches"].max())
    way = f"`--max-launches {launches + 2}` goes on"
    if launches < study.question.max_launches:
        way = "The same command goes on"
    return (
        f"{counted}; {is_open.sum()} {'is' if is_open.sum() == 1 else 'are'} open after "
        f"{count_of(launches, 'launch')}. {way}, and `--goal throughput` asks for the best one."
    )


def limits_on(
    recommended: Sequence[Recommendation], frontiers: Sequence[Frontier], bounds: pd.DataFrame
) -> list[str]:
    """Say what limits recommended points, and count what limits those on frontiers."""
    import pandas as pd

    sentences = []
    for recommendation, name in zip(recommended, names_of(recommended), strict=True):
        row = bounds_of(recommendation.point.to_frame().T, bounds).iloc[0]
        limit = ""
        if row["bound"]:
            limit = f"{row['bound']}: "
        following = ""
        if row["next_axes"]:
            following = (
                f" Try next: {next_words(row['next_axes'])}. Each could save at most that share "
                "of the step."
            )
        sentences.append(
            f"The recommended one{f' ({name})' if name else ''}: "
            f"{limit}{row['bound_reason']}.{following}"
        )
    shown = [bounds_of(frontier.shown, bounds) for frontier in frontiers if len(frontier.shown)]
    if shown:
        sentences.append(f"Points on frontiers: {bounds_sentence(pd.concat(shown))}")
    return sentences


def bounds_of(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = [tuple(row) for row in bounds[[*POINT]].astype(object).fillna("").to_numpy()]
    places = {key: place for place, key in enumerate(keys)}
    return bounds.iloc[
        [places[tuple(row)] for row in points[[*POINT]].astype(object).fillna("").to_numpy()]
    ]
