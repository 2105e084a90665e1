"""Points worth running: no other point is better in all requested objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.dominance import PointCosts, compare, places_to_launch
from dtsweep.analysis.objectives import (
    MAXIMIZED,
    MINIMIZED,
    Objective,
    cost_of,
    costs_of,
    read_objectives,
)
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.inference.pareto import knee_of
from dtsweep.inference.spread import POINT, of_environment
from dtsweep.sweep.mode_info import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd


UPDATE = ("semantics", "update_kind")
"""Columns that separate points by what an update does."""

MODEL = ("workload", "model_digest")
"""Columns that separate groups of points that are no substitute for each other."""


def frontier(
    frame: Frame,
    *,
    minimize: Sequence[str] = MINIMIZED,
    maximize: Sequence[str] = MAXIMIZED,
    where: str = "",
) -> pd.DataFrame:
    """Find the points that no other one beats, for each kind of update, model and environment.

    A point is off the frontier where launches tell (`inference.contrasts`) that another one is
    better in each objective (equal is enough where an objective is set, not measured, as
    `workers`). By estimates alone more points are beaten.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        minimize: columns of points that should be small.
        maximize: columns that should be large.
        where: a condition that points have to meet, as `parse_condition` reads it; empty for all
            points.

    Returns:
        The points of `over_launches`, sorted by semantics, kind of update, model (fewest FLOPs
        first), environment and the first objective, with `meets`, whether the condition is met,
        null where what it asks for was not measured; `standing` (of `dominance.compare`), null
        where it is not met or an objective is null; `is_open`, True where more launches would have
        to show whether a point is on the frontier (`places_to_launch`); `on_frontier`, True where
        its standing is `frontier` or `undecided`; `knee`, True where `knee_of` finds it among the
        means.

    Raises:
        SweepError: an objective or the condition can't be read.
    """
    study = study_of(frame)
    objectives = read_objectives(study.points, minimize=minimize, maximize=maximize)
    points = study.points.assign(meets=study.condition(where).holds(study.points))
    points = points.assign(standing=None, is_open=False, knee=False)
    eligible = points[points["meets"].fillna(value=False)]
    for env_id in eligible["env_id"].drop_duplicates():
        _write_standings(points, of_environment(eligible, env_id), objectives, study=study)
    points["on_frontier"] = points["standing"].isin(["frontier", "undecided"])
    # What comes last is sorted by first: only the objective may run downwards.
    first = objectives[0]
    points = points.sort_values(first.name, ascending=not first.maximize, kind="stable")
    keys = [*UPDATE, "flops_per_sample", *MODEL, "env_id"]
    return points.sort_values(keys, key=_in_order, ignore_index=True, kind="stable")


def costs_in(
    study: Study, points: pd.DataFrame, objectives: Sequence[Objective]
) -> tuple[PointCosts, pd.DataFrame]:
    """Arrange the objectives of one environment, with the study's level and zone.

    Returns:
        The costs, and these points of it with `row`, their number among the costs.
    """
    trials = of_environment(study.trials, points["env_id"].iloc[0])
    trials = trials.dropna(subset=[objective.name for objective in objectives])
    costs = PointCosts(
        tuple(cost_of(trials, objective) for objective in objectives),
        level=study.level,
        zone=study.zone,
    )
    launch_rows = costs.costs[0].launches.points.reset_index(names="row")
    return costs, points.merge(launch_rows, on=list(POINT))


def _write_standings(
    points: pd.DataFrame,
    eligible: pd.DataFrame,
    objectives: Sequence[Objective],
    *,
    study: Study,
) -> None:
    """Write the standings and the knee of one environment's points into `points`."""
    costs, rows = costs_in(study, eligible.reset_index(), objectives)
    for _, group in rows.groupby([*UPDATE, *MODEL], dropna=False):
        numbers = group["row"].to_numpy()
        standing = compare(costs, numbers)
        points.loc[group["index"], "standing"] = standing
        open_places, _ = places_to_launch(costs, numbers, standing)
        points.loc[group["index"].iloc[open_places], "is_open"] = True
        best = group["index"][np.isin(standing, ["frontier", "undecided"])]
        row = knee_of(costs_of(points.loc[best], objectives))
        if row is not None:
            points.loc[best.iloc[row], "knee"] = True


def _in_order(column: pd.Series) -> pd.Series:
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
