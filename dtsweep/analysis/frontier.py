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
from dtsweep.analysis.resampling import probabilities
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.inference.pareto import hypervolume_of, knee_of
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
    compare_models: bool = False,
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
        compare_models: compare all models with each other, as if a sample of one were one of
            another.

    Returns:
        The points of `over_launches`, sorted by semantics, kind of update, model (fewest FLOPs
        first), environment and the first objective, with `meets`, whether the condition is met,
        null where what it asks for was not measured; `standing`, one of `STANDINGS`, null where it
        is not met or an objective is null; `is_open`, True where more launches would have to show
        whether a point is on the frontier (`places_to_launch`); `on_frontier`, True where its
        standing is `frontier` or `undecided`;
        `frontier_probability`, how often it is when all means are drawn again with the errors of
        `inference.contrasts`, null where a point has too few launches for that, and other points
        have more; `knee`, True where `knee_of` finds it among the means, and `knee_probability`,
        how often in those draws.

    Raises:
        SweepError: an objective or the condition can't be read.
    """
    study = study_of(frame)
    objectives = read_objectives(study.points, minimize=minimize, maximize=maximize)
    points = study.points.assign(meets=study.condition(where).holds(study.points))
    points = points.assign(
        standing=None,
        is_open=False,
        frontier_probability=np.nan,
        knee=False,
        knee_probability=np.nan,
    )
    eligible = points[points["meets"].fillna(value=False)]
    for env_id in eligible["env_id"].drop_duplicates():
        environment_points = of_environment(eligible, env_id)
        trials = of_environment(study.trials, env_id)
        _write_standings(
            points,
            environment_points,
            trials,
            objectives,
            study=study,
            compare_models=compare_models,
        )
    points["on_frontier"] = points["standing"].isin(["frontier", "undecided"])
    return _sorted(
        points, objectives[0], models=[] if compare_models else ["flops_per_sample", *MODEL]
    )


def hypervolume(
    points: pd.DataFrame,
    *,
    minimize: Sequence[str] = MINIMIZED,
    maximize: Sequence[str] = MAXIMIZED,
) -> pd.DataFrame:
    """Measure how much each frontier dominates of what lies above the worst that was measured.

    Args:
        points: rows of `frontier` with the same objectives.
        minimize: columns that should be small.
        maximize: columns that should be large.

    Returns:
        One row per kind of update, model and environment: `hypervolume`, the volume that its
        frontier dominates, as a share of the box from the worst to the best value of each objective
        among all points of the environment, on logarithmic scales where all values are positive.
        Frontiers of one environment share the box, so their volumes compare; those of two
        environments don't. Null where no objective varies.
    """
    import pandas as pd

    keys = [*UPDATE, *MODEL, "env_id"]
    rows = []
    objectives = read_objectives(points, minimize=minimize, maximize=maximize)
    judged = points[points["standing"].notna()]
    for _, environment_points in judged.groupby("env_id", dropna=False, sort=False):
        costs = costs_of(environment_points, objectives)
        size = np.ptp(costs, axis=0)
        scaled = ((costs - costs.min(axis=0)) / np.where(size > 0, size, 1.0))[:, size > 0]
        numbered = environment_points.reset_index(drop=True)
        for _, group in numbered.groupby(keys, dropna=False, sort=False):
            worst = np.ones(scaled.shape[1])
            if len(worst):
                share = hypervolume_of(scaled[group.index], worst)
            else:
                share = np.nan
            rows.append({**group[keys].iloc[0].to_dict(), "hypervolume": share})
    return pd.DataFrame(rows, columns=[*keys, "hypervolume"])


def point_costs(study: Study, trials: pd.DataFrame, objectives: Sequence[Objective]) -> PointCosts:
    """Arrange the objectives of one environment's trials, with the study's level and zone.

    Args:
        study: of the trials.
        trials: of the environment, each with a value of every objective.
        objectives: of the frontier.
    """
    return PointCosts(
        tuple(cost_of(trials, objective) for objective in objectives),
        level=study.level,
        zone=study.zone,
    )


def _write_standings(
    points: pd.DataFrame,
    eligible: pd.DataFrame,
    trials: pd.DataFrame,
    objectives: Sequence[Objective],
    *,
    study: Study,
    compare_models: bool,
) -> None:
    """Write the standing and probabilities of one environment's points into `points`.

    Args:
        points: all.
        eligible: those of them, with the same index, that meet the condition in this environment.
        trials: of the environment.
        objectives: of the frontier.
        study: says the level of a comparison and the indifference zone.
        compare_models: whether models count as one.
    """
    trials = trials.dropna(subset=[objective.name for objective in objectives])
    costs = point_costs(study, trials, objectives)
    launch_rows = costs.costs[0].launches.points.reset_index(names="row")
    rows = eligible.reset_index().merge(launch_rows, on=list(POINT))
    for _, group in rows.groupby([*UPDATE, *(() if compare_models else MODEL)], dropna=False):
        numbers = group["row"].to_numpy()
        standing, near = compare(costs, numbers)
        drawn = probabilities(costs, numbers, near)
        points.loc[group["index"], "standing"] = standing
        open_places, _ = places_to_launch(costs, numbers, standing)
        points.loc[group["index"].iloc[open_places], "is_open"] = True
        points.loc[group["index"], "frontier_probability"] = drawn.frontier
        points.loc[group["index"], "knee_probability"] = drawn.knee
        best = group["index"][np.isin(standing, ["frontier", "undecided"])]
        row = knee_of(costs_of(points.loc[best], objectives))
        if row is not None:
            points.loc[best.iloc[row], "knee"] = True


def _sorted(points: pd.DataFrame, first: Objective, *, models: Sequence[str]) -> pd.DataFrame:
    # What comes last is sorted by first: only the objective may run downwards.
    points = points.sort_values(first.name, ascending=not first.maximize, kind="stable")
    return points.sort_values(
        [*UPDATE, *models, "env_id"], key=_in_order, ignore_index=True, kind="stable"
    )


def _in_order(column: pd.Series) -> pd.Series:
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
