"""Points worth running: no other point is better in all requested objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.dominance import PointCosts, Rows, compare, places_to_launch
from dtsweep.analysis.objectives import (
    MAXIMIZED,
    MINIMIZED,
    Objective,
    cost_of,
    costs_of,
    read_objectives,
)
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.pareto import knee_of, knees_of, on_frontiers
from dtsweep.inference.spread import POINT, of_environment
from dtsweep.inference.variance import Numbers
from dtsweep.sweep.mode_info import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd


_DRAWS = 2000


def _probabilities(costs: PointCosts, numbers: Rows, near: Rows) -> Numbers:
    """(2, points) probability to be on the frontier if all means are drawn again, and its knee.

    Nan where an error is unknown.

    A point far off the frontier is off in every draw, and changes no other point's draws.
    """
    shares = np.full((2, len(numbers)), 0.0 if len(near) else np.nan)
    if len(near) == 1 < len(numbers):
        shares[0, near] = 1.0
    elif len(near):
        shares[:, near] = _probability(costs, numbers[near])
        if np.isnan(shares[0, near]).all():
            shares[:] = np.nan
    return shares


def _probability(costs: PointCosts, numbers: Rows) -> Numbers:
    """As `_probabilities`, for points near the frontier only."""
    contrasts = [cost.contrasts(numbers, numbers) for cost in costs.costs]
    tested = np.logical_and.reduce([contrast.tested for contrast in contrasts])
    places = _tested_against_each_other(tested | np.eye(len(numbers), dtype=np.bool_))
    shares = np.full((2, len(numbers)), np.nan)
    if len(places) > 1 or (len(numbers) == 1 and tested.all()):
        draws = _draws(costs, numbers[places], contrasts, places)
        is_on_frontier = on_frontiers(draws)
        knees = knees_of(draws, is_on_frontier)
        counts = np.bincount(knees[knees >= 0], minlength=draws.shape[1])
        shares[0, places] = is_on_frontier.mean(axis=0)
        shares[1, places] = counts / len(draws)
    return shares


def _tested_against_each_other(tested: NDArray[np.bool_]) -> Rows:
    """Leave out points with the fewest tests until all remaining pairs have one."""
    inside = np.ones(len(tested), dtype=np.bool_)
    counts = tested.sum(axis=1)
    while (counts[inside] < inside.sum()).any():
        least = np.where(inside, counts, len(counts) + 1).argmin()
        inside[least] = False
        counts = counts - tested[:, least]
    return inside.nonzero()[0]


def _draws(
    costs: PointCosts, numbers: Rows, contrasts: Sequence[Contrasts], places: Rows
) -> Numbers:
    """Draw the costs of points again, (draws, points, objectives), where all errors are known."""
    off_diagonal = ~np.eye(len(places), dtype=np.bool_)
    cells = np.ix_(places, places)
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(len(contrasts), _DRAWS, len(places)))
    noise = np.tensordot(_mixture(costs), normal, axes=1)
    draws = np.empty((_DRAWS, len(places), len(contrasts)))
    for column, (contrast, cost) in enumerate(zip(contrasts, costs.costs, strict=True)):
        if cost.is_exact:
            draws[:, :, column] = cost.launches.point_means[numbers]
        else:
            # Differences to the mean of all: those to one point would depend on which one that is.
            root = _root(contrast.half_width[cells] * off_diagonal)
            draws[:, :, column] = contrast.estimate[cells].mean(axis=1) + noise[column] @ root
    return draws


def _mixture(costs: PointCosts) -> Numbers:
    """Square root of the correlation matrix of a point's cost errors, from launches' deviations."""
    residuals = [np.nan_to_num(cost.launches.residuals).ravel() for cost in costs.costs]
    sizes = np.array([np.linalg.norm(vector) for vector in residuals])
    products = np.array([[row @ column for column in residuals] for row in residuals])
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.nan_to_num(products / np.outer(sizes, sizes))
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    root: Numbers = vectors * np.maximum(values, 0) ** 0.5
    return root


def _root(half_width: Numbers) -> Numbers:
    """Symmetric root of the covariance whose differences have the given half-widths.

    By classical scaling (Torgerson 1952).

    Only differences matter for a frontier; what all points have in common, as a launch that
    measured all, is left out.
    """
    squares = (half_width / 1.96) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    root: Numbers = (vectors * np.maximum(values, 0) ** 0.5) @ vectors.T
    return root


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
        its standing is `frontier` or `undecided`;
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
    """Write the standing and probabilities of one environment's points into `points`."""
    costs, rows = costs_in(study, eligible.reset_index(), objectives)
    for _, group in rows.groupby([*UPDATE, *MODEL], dropna=False):
        numbers = group["row"].to_numpy()
        standing, near = compare(costs, numbers)
        on_it, knees = _probabilities(costs, numbers, near)
        points.loc[group["index"], "standing"] = standing
        open_places, _ = places_to_launch(costs, numbers, standing)
        points.loc[group["index"].iloc[open_places], "is_open"] = True
        points.loc[group["index"], "frontier_probability"] = on_it
        points.loc[group["index"], "knee_probability"] = knees
        best = group["index"][np.isin(standing, ["frontier", "undecided"])]
        row = knee_of(costs_of(points.loc[best], objectives))
        if row is not None:
            points.loc[best.iloc[row], "knee"] = True


def _in_order(column: pd.Series) -> pd.Series:
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
