"""Advice of a report in remarks: a configuration per model, its limit and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import recommend
from dtsweep.analysis.launches import rows_of
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import point_key
from dtsweep.report.notes import counts_of
from dtsweep.report.recommendation import in_words, names_of
from dtsweep.report.records import records_of
from dtsweep.report.remarks import Remark, remark
from dtsweep.sweep.goal import Goal

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.next_axes import NextAxis

_UNKNOWN = "not known"
"""Text for a point without a bound."""


def goal_asked(study: Study, *, minimize: Sequence[str], maximize: Sequence[str]) -> Goal:
    """Goal of a report: its one objective; that of the results where it has several."""
    if len((*minimize, *maximize)) != 1:
        return study.goal
    return Goal(minimize=next(iter(minimize), None), maximize=next(iter(maximize), None))


def recommended_in(
    study: Study, goal: Goal, *, where: str, compare_models: bool
) -> tuple[list[Recommendation], list[Remark]]:
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
        return recommend(study, goal, compare_models=compare_models), []
    except SweepError as error:
        return [], [remark("no_recommendation", reason=str(error))]


def advice_on(
    recommendations: Sequence[Recommendation], varying: Sequence[str]
) -> list[list[list[Remark]]]:
    """Make the remarks on recommendations; each is named if there are several."""
    names = names_of(recommendations)
    return [
        in_words(recommendation, varying=varying, name=name, named=1)
        for recommendation, name in zip(recommendations, names, strict=True)
    ]


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


def limits_on(
    recommended: Sequence[Recommendation], frontiers: Sequence[Frontier], bounds: pd.DataFrame
) -> list[Remark]:
    """Say what limits recommended points, and count what limits those on frontiers."""
    import pandas as pd

    remarks = []
    for recommendation, name in zip(recommended, names_of(recommended), strict=True):
        row = rows_of_bounds(recommendation.point.to_frame().T, bounds).iloc[0]
        point = f"The recommended one ({name})" if name else "The recommended one"
        reason = row["bound_reason"]
        if row["bound"]:
            reason = f"{row['bound']}: {reason}"
        remarks.append(remark("limit", point=point, bound=row["bound"], reason=reason))
        if row["next_axes"]:
            shares = {axis.axis: axis.at_most_share for axis in row["next_axes"]}
            remarks.append(remark("try_next", axes=_next_words(row["next_axes"]), shares=shares))
    shown = [
        rows_of_bounds(frontier.shown, bounds) for frontier in frontiers if len(frontier.shown)
    ]
    if shown:
        remarks.append(bounds_counted(pd.concat(shown)))
    return remarks


def rows_of_bounds(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = map(point_key, rows_of(bounds[[*POINT]]))
    places = {key: place for place, key in enumerate(keys)}
    wanted = map(point_key, rows_of(points[[*POINT]]))
    return bounds.iloc[[places[key] for key in wanted]]


def bound_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of a table by point: what limits it, the number that says so, and what to try next.

    Args:
        rows: of `dtsweep.analysis.bottleneck`, in the order of the table.
    """
    return {
        "limited by": [bound or _UNKNOWN for bound in rows["bound"]],
        "because": list(rows["bound_reason"]),
        "try next (share of the step)": [_next_words(axes) for axes in rows["next_axes"]],
    }


def _next_words(axes: Sequence[NextAxis]) -> str:
    """Name axes with the share of the step that each attacks: the most that it can save.

    A share above the whole step is noise.

    >>> from dtsweep.analysis.next_axes import NextAxis
    >>> _next_words([NextAxis("precision", 0.5, ""), NextAxis("workers", 0.98, "")])
    'precision 50 %, workers 98 %'
    """
    return ", ".join(f"{axis.axis} {min(1.0, axis.at_most_share) * 100:.0f} %" for axis in axes)


def bounds_counted(rows: pd.DataFrame) -> Remark:
    """Count points by their bound, the most frequent first."""
    return remark("bounds", counts=counts_of(rows["bound"].map(lambda bound: bound or _UNKNOWN)))


def bounds_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Give rows of `dtsweep.analysis.bottleneck` as JSON values; unknown is None.

    Returns:
        One dict per point with the columns of `bottleneck`; `next_axes` is a list of dicts with
        `axis`, `at_most_share` and `why`.
    """
    next_axes = rows["next_axes"].map(lambda axes: [axis._asdict() for axis in axes])
    return records_of(rows.assign(next_axes=next_axes))
