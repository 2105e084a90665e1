"""Which points are worth running: no other one is better in all objectives that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtsweep.analysis.contrasts import Contrasts
from dtsweep.analysis.launches import measured, points_of
from dtsweep.analysis.objectives import (
    MAXIMIZED,
    MINIMIZED,
    Objective,
    cost_of,
    costs_of,
    read_objectives,
)
from dtsweep.analysis.pareto import hypervolume_of, knee_of, on_frontier
from dtsweep.analysis.spread import POINT, of_environment
from dtsweep.analysis.standing import Rivals, Rows, of_few, of_many
from dtsweep.analysis.variance import Numbers
from dtsweep.analysis.where import meets
from dtsweep.sweep.modes import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_PRODUCT = ("older_source", "semantics")
MODEL = ("workload", "model_digest")
"""What is a product of its own: more of one is no substitute for another."""

_DRAWS = 2000

MANY = 500
"""Points from which on those that are far off the frontier are told by the best ones alone."""


class _Drawn(NamedTuple):
    """How often a point is on the frontier, and is its knee, when all means are drawn anew; nan where unknown."""

    frontier: Numbers
    knee: Numbers


def frontier(
    frame: pd.DataFrame,
    *,
    minimize: Sequence[str] = MINIMIZED,
    maximize: Sequence[str] = MAXIMIZED,
    where: str = "",
    one_product: bool = False,
) -> pd.DataFrame:
    """Find the points that no other one beats, for each source, semantics, model and environment.

    A point is off the frontier where `difference` can tell that another one is better in each objective (equal is
    enough where an objective is set, not measured, as `workers`). By its estimates alone more points are beaten.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        minimize: columns of points that should be small.
        maximize: columns that should be large.
        where: a condition that points have to meet, as `parse_condition` reads it; empty for all points.
        one_product: compare all models with each other, as if a sample of one were one of another.

    Returns:
        The points of `over_launches`, sorted by source (the newest first), semantics, model (fewest FLOPs first),
        environment and the first objective, with
        `meets`, whether the condition is met, null where what it asks for was not measured;
        `standing`, one of `STANDINGS`, null where it is not met or an objective is null;
        `on_frontier`, True where that is `frontier` or `undecided`;
        `frontier_probability`, how often it is when all means are drawn anew with the errors that `difference` finds,
        null where a point has too few launches for that, beside points that have more;
        `knee`, True where `knee_of` finds it among the means, and `knee_probability`, how often in those draws.

    Raises:
        SweepError: an objective or the condition can't be read.
    """
    trials = measured(frame)
    points = points_of(trials)
    objectives = read_objectives(points, minimize=minimize, maximize=maximize)
    points["meets"] = meets(points, where)
    points = points.assign(standing=None, frontier_probability=np.nan, knee=False, knee_probability=np.nan)
    asked = points[points["meets"].fillna(value=False)]
    for env_id in asked["env_id"].drop_duplicates():
        _judge(
            points, of_environment(asked, env_id), of_environment(trials, env_id), objectives, one_product=one_product
        )
    points["on_frontier"] = points["standing"].isin(["frontier", "undecided"])
    return _sorted(points, objectives[0], models=[] if one_product else ["flops_per_sample", *MODEL])


def hypervolume(
    points: pd.DataFrame, *, minimize: Sequence[str] = MINIMIZED, maximize: Sequence[str] = MAXIMIZED
) -> pd.DataFrame:
    """Measure how much each frontier dominates of what lies above the worst that was measured.

    Args:
        points: rows of `frontier` with the same objectives.
        minimize: columns that should be small.
        maximize: columns that should be large.

    Returns:
        One row per source, semantics, model and environment: `hypervolume`, the volume that its frontier dominates, as
        a share of the box from the worst to the best value of each objective among all points of the environment, on
        logarithmic scales where all values are positive. Frontiers of one environment share the box, so their
        volumes compare; those of two environments don't. Null where no objective varies.
    """
    import pandas as pd

    keys = [*_PRODUCT, *MODEL, "env_id"]
    rows = []
    objectives = read_objectives(points, minimize=minimize, maximize=maximize)
    for _, there in points[points["standing"].notna()].groupby("env_id", dropna=False, sort=False):
        costs = costs_of(there, objectives)
        size = np.ptp(costs, axis=0)
        scaled = ((costs - costs.min(axis=0)) / np.where(size > 0, size, 1.0))[:, size > 0]
        numbered = there.reset_index(drop=True)
        for _, group in numbered.groupby(keys, dropna=False, sort=False):
            worst = np.ones(scaled.shape[1])
            share = hypervolume_of(scaled[group.index], worst) if len(worst) else np.nan
            rows.append({**group[keys].iloc[0].to_dict(), "hypervolume": share})
    return pd.DataFrame(rows, columns=[*keys, "hypervolume"])


def _judge(
    points: pd.DataFrame,
    asked: pd.DataFrame,
    trials: pd.DataFrame,
    objectives: Sequence[Objective],
    *,
    one_product: bool,
) -> None:
    """Write into `points` how those of one environment stand.

    Args:
        points: all.
        asked: those of them, with the same index, that meet the condition in this environment.
        trials: of the environment.
        objectives: of the frontier.
        one_product: whether models count as one.
    """
    trials = trials.dropna(subset=[each.name for each in objectives])
    rivals = Rivals(tuple(cost_of(trials, each) for each in objectives))
    known = rivals.costs[0].launches.points.reset_index(names="row")
    rows = asked.reset_index().merge(known, on=list(POINT))
    for _, group in rows.groupby([*_PRODUCT, *(() if one_product else MODEL)], dropna=False):
        numbers = group["row"].to_numpy()
        standing, near = (of_many if len(numbers) > MANY else of_few)(rivals, numbers)
        drawn = _probabilities(rivals, numbers, near)
        points.loc[group["index"], "standing"] = standing
        points.loc[group["index"], "frontier_probability"] = drawn.frontier
        points.loc[group["index"], "knee_probability"] = drawn.knee
        best = group["index"][np.isin(standing, ["frontier", "undecided"])]
        row = knee_of(costs_of(points.loc[best], objectives))
        if row is not None:
            points.loc[best.iloc[row], "knee"] = True


def _probabilities(rivals: Rivals, numbers: Rows, near: Rows) -> _Drawn:
    """How often each point is on the frontier, and its knee; nan where an error is not known.

    What is far off the frontier is off in every draw, and changes no other point's draws.

    Args:
        rivals: of the environment.
        numbers: rows of points in it.
        near: those of them that are not far off; none where nothing can be tested.
    """
    drawn = _Drawn(*np.full((2, len(numbers)), 0.0 if len(near) else np.nan))
    if len(near) == 1 < len(numbers):
        drawn.frontier[near] = 1.0
    elif len(near):
        found = _probability(rivals, numbers[near])
        drawn.frontier[near], drawn.knee[near] = found
    return drawn


def _probability(rivals: Rivals, numbers: Rows) -> _Drawn:
    """The same of points near the frontier alone."""
    each = rivals.excess(numbers, numbers)
    tested = np.logical_and.reduce([found.tested for found in each])
    kept = _known_beside_each_other(tested | np.eye(len(numbers), dtype=np.bool_))
    drawn = _Drawn(*np.full((2, len(numbers)), np.nan))
    if len(kept) > 1 or (len(numbers) == 1 and tested.all()):
        found = _shares_of_draws(_draws(rivals, numbers[kept], each, kept))
        drawn.frontier[kept], drawn.knee[kept] = found
    return drawn


def _known_beside_each_other(tested: NDArray[np.bool_]) -> Rows:
    """Leave points out that nothing is known of beside most others, the least known first."""
    inside, counts = np.ones(len(tested), dtype=np.bool_), tested.sum(axis=1)
    while (counts[inside] < inside.sum()).any():
        least = np.where(inside, counts, len(counts) + 1).argmin()
        inside[least] = False
        counts = counts - tested[:, least]
    return inside.nonzero()[0]


def _draws(rivals: Rivals, numbers: Rows, each: Sequence[Contrasts], kept: Rows) -> Numbers:
    """Draw the costs of points anew, (draws, points, objectives), where all errors are known.

    Args:
        rivals: of the environment.
        numbers: rows of points in it.
        each: by objective, contrasts of these and more points.
        kept: which of those these are.
    """
    others = ~np.eye(len(kept), dtype=np.bool_)
    cells = np.ix_(kept, kept)
    rng = np.random.default_rng(0)
    noise = np.tensordot(_mixture(rivals), rng.normal(size=(len(each), _DRAWS, len(kept))), axes=1)
    drawn = np.empty((_DRAWS, len(kept), len(each)))
    for place, (found, cost) in enumerate(zip(each, rivals.costs, strict=True)):
        if cost.is_exact:
            drawn[:, :, place] = cost.launches.centres[numbers]
        else:
            # Differences to the mean of all: those to one point would depend on which one that is.
            drawn[:, :, place] = found.estimate[cells].mean(axis=1) + noise[place] @ _root(found.reach[cells] * others)
    return drawn


def _shares_of_draws(drawn: Numbers) -> _Drawn:
    """In which share of the draws each point is on the frontier, and its knee."""
    on, knee = np.zeros((2, drawn.shape[1]))
    for costs in drawn:
        places = on_frontier(costs).nonzero()[0]
        on[places] += 1
        row = knee_of(costs[places])
        if row is not None:
            knee[places[row]] += 1
    return _Drawn(on / len(drawn), knee / len(drawn))


def _mixture(rivals: Rivals) -> Numbers:
    """A root of the correlations between the errors of a point's costs, by the distances of launches from its mean."""
    left = [np.nan_to_num(cost.launches.left).ravel() for cost in rivals.costs]
    sizes = np.array([np.linalg.norm(each) for each in left])
    products = np.array([[one @ other for other in left] for one in left])
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.nan_to_num(products / np.outer(sizes, sizes))
    np.fill_diagonal(correlations, 1.0)
    values, vectors = np.linalg.eigh(correlations)
    root: Numbers = vectors * np.maximum(values, 0) ** 0.5
    return root


def _root(reach: Numbers) -> Numbers:
    """Symmetric root of a covariance whose differences have these reaches (classical scaling, Torgerson 1952).

    Only differences matter for a frontier; what all points have in common, as a launch that measured all, is left out.
    """
    squares = (reach / 1.96) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    root: Numbers = (vectors * np.maximum(values, 0) ** 0.5) @ vectors.T
    return root


def _sorted(points: pd.DataFrame, first: Objective, *, models: Sequence[str]) -> pd.DataFrame:
    # What comes last is sorted by first: only the objective may run downwards.
    points = points.sort_values(first.name, ascending=not first.maximize, kind="stable")
    return points.sort_values(
        ["older_source", "semantics", *models, "env_id"], key=_in_order, ignore_index=True, kind="stable"
    )


def _in_order(column: pd.Series) -> pd.Series:
    if column.name == "older_source":
        return column.fillna("")
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
