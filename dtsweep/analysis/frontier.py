"""Which points are worth running: no other one is both faster per step and higher in throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.contrasts import Contrasts, logarithms_of
from dtsweep.analysis.launches import measured, points_of
from dtsweep.analysis.spread import POINT, Launches
from dtsweep.analysis.standing import Pair, of_few, of_many
from dtsweep.analysis.variance import Numbers
from dtsweep.sweep.modes import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_OBJECTIVES = ("latency_s", "samples_per_s")

_PRODUCT = ("older_source", "semantics")
_MODEL = ("workload", "model_digest")
"""What is a product of its own: more of one is no substitute for another."""

_DRAWS = 2000

MANY = 500
"""Points from which on those that are far off the frontier are told by the best ones alone."""


def on_frontier(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows that no other row dominates.

    Args:
        costs: (trials, objectives), smaller is better; negate what should grow.

    Returns:
        (trials,), True on the frontier. Equal rows don't dominate each other.
    """
    no_worse = (costs[:, None] <= costs).all(axis=2)
    return ~np.asarray((no_worse & ~no_worse.T).any(axis=0))


def frontier(frame: pd.DataFrame, *, one_product: bool = False) -> pd.DataFrame:
    """Find the frontier of latency against throughput, one for each source, semantics, model and environment.

    A point is off it where `difference` can tell that another one is better in both. By `difference`'s estimates alone,
    which are means over the launches that points share where `difference` compares them in pairs, more points are
    beaten. `standing` says which holds:

    - `frontier`: no other point beats it by the estimates.
    - `undecided`: one does, but launches can't tell; or they tell it of points in a circle, which can be where points
      share some launches.
    - `dominated`: launches can tell.
    - `untested`: another point beats it, both have one launch, and nothing else says how far launches differ.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        one_product: compare all workloads and models (`model_digest`) with each other, as if a sample of one were one
            of another.

    Returns:
        The points of `over_launches`, sorted by source (the newest first), semantics, model (fewest FLOPs first),
        environment and `latency_s`, with `standing` (null without latency or throughput); `on_frontier`, True where
        that is `frontier` or `undecided`; `frontier_probability`, how often the point is on the frontier when all means
        are drawn anew with the errors that `difference` finds, null where a point has too few launches for that, beside
        points that have more.
    """
    trials = measured(frame)
    points = points_of(trials).assign(standing=None, frontier_probability=np.nan)
    for _, there in trials.dropna(subset=list(_OBJECTIVES)).groupby("env_id", dropna=False):
        latency, rate = (logarithms_of(there, of) for of in _OBJECTIVES)
        rows = latency.points.merge(points.reset_index(), how="left", on=list(POINT))
        for _, group in rows.groupby([*_PRODUCT, *(() if one_product else _MODEL)], dropna=False):
            numbers = group.index.to_numpy()
            pair = Pair(latency, rate)
            standing, near = (of_many if len(numbers) > MANY else of_few)(pair, numbers)
            points.loc[group["index"], "standing"] = standing
            points.loc[group["index"], "frontier_probability"] = _probabilities(pair, numbers, near)
    points["on_frontier"] = points["standing"].isin(["frontier", "undecided"])
    models = [] if one_product else ["flops_per_sample", *_MODEL]
    return points.sort_values(
        ["older_source", "semantics", *models, "env_id", "latency_s"], key=_in_order, ignore_index=True
    )


def _probabilities(pair: Pair, numbers: NDArray[np.intp], near: NDArray[np.intp]) -> Numbers:
    """How often each point is on the frontier; nan where an error is not known.

    What is far off the frontier is off in every draw, and changes no other point's draws.

    Args:
        pair: of the environment.
        numbers: rows of points in it.
        near: those of them that are not far off; none where nothing can be tested.
    """
    drawn = np.full(len(numbers), 0.0 if len(near) else np.nan)
    if len(near) == 1 < len(numbers):
        drawn[near] = 1.0
    elif len(near):
        both = pair.both(numbers[near], numbers[near])
        drawn[near] = _probability(*both, together=_correlation(pair.latency, pair.rate))
    return drawn


def _probability(slower: Contrasts, higher: Contrasts, *, together: float) -> Numbers:
    """How often each point is on the frontier of drawn means; nan where an error is not known.

    Args:
        slower: of latencies, each point to each.
        higher: of throughputs.
        together: correlation of the errors of a point's two.
    """
    probability = np.full(len(slower.estimate), np.nan)
    tested = slower.tested & higher.tested | np.eye(len(probability), dtype=np.bool_)
    inside, counts = np.ones(len(probability), dtype=np.bool_), tested.sum(axis=1)
    # Points that nothing is known of beside most others are left out, the least known first.
    while (counts[inside] < inside.sum()).any():
        least = np.where(inside, counts, len(counts) + 1).argmin()
        inside[least] = False
        counts = counts - tested[:, least]
    kept = inside.nonzero()[0]
    if len(kept) > 1 or (len(probability) == 1 and (slower.tested & higher.tested).all()):
        probability[kept] = _drawn(*(_part(each, kept) for each in (slower, higher)), together=together)
    return probability


def _part(whole: Contrasts, kept: NDArray[np.intp]) -> Contrasts:
    cells = np.ix_(kept, kept)
    return Contrasts(
        estimate=whole.estimate[cells],
        reach=whole.reach[cells],
        degrees=whole.degrees[cells],
        paired=whole.paired[cells],
        pooled=whole.pooled[cells],
    )


def _drawn(slower: Contrasts, higher: Contrasts, *, together: float) -> Numbers:
    """How often each point is on the frontier of drawn means, where all errors are known."""
    others = ~np.eye(len(slower.estimate), dtype=np.bool_)
    rng = np.random.default_rng(0)
    noise, more = rng.normal(size=(2, _DRAWS, len(others)))
    # Differences to the mean of all: those to one point would depend on which one that is.
    latencies = slower.estimate.mean(axis=1) + noise @ _root(slower.reach * others)
    rates = higher.estimate.mean(axis=1) + (together * noise + (1 - together**2) ** 0.5 * more) @ _root(
        higher.reach * others
    )
    order = latencies.argsort(axis=1)
    ordered = np.take_along_axis(rates, order, axis=1)
    best_before = np.maximum.accumulate(ordered, axis=1)[:, :-1]
    on = np.ones(rates.shape, dtype=np.bool_)
    np.put_along_axis(on, order[:, 1:], ordered[:, 1:] >= best_before, axis=1)
    probability: Numbers = on.mean(axis=0)
    return probability


def _root(reach: Numbers) -> Numbers:
    """Symmetric root of a covariance whose differences have these reaches (classical scaling, Torgerson 1952).

    Only differences matter for a frontier; what all points have in common, as a launch that measured all, is left out.
    """
    squares = (reach / 1.96) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    root: Numbers = (vectors * np.maximum(values, 0) ** 0.5) @ vectors.T
    return root


def _correlation(first: Launches, second: Launches) -> float:
    """Of the distances of launches from their point's mean, in two quantities of the same launches."""
    products = np.nansum((first.means - first.centres[:, None]) * (second.means - second.centres[:, None]))
    size = (first.squares.sum() * second.squares.sum()) ** 0.5
    return float(np.clip(products / size, -1, 1)) if size > 0 else 0.0


def _in_order(column: pd.Series) -> pd.Series:
    if column.name == "older_source":
        return column.fillna("")
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
