"""Which points are worth running: no other one is both faster per step and higher in throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.contrasts import Contrasts, contrasts, logarithms_of
from dtsweep.analysis.launches import measured, over_launches
from dtsweep.analysis.spread import POINT, Launches
from dtsweep.analysis.variance import Numbers
from dtsweep.sweep.modes import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_OBJECTIVES = ("latency_s", "samples_per_s")

_DRAWS = 2000


def on_frontier(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows that no other row dominates.

    Args:
        costs: (trials, objectives), smaller is better; negate what should grow.

    Returns:
        (trials,), True on the frontier. Equal rows don't dominate each other.
    """
    return ~np.asarray(_dominates(costs).any(axis=0))


def frontier(frame: pd.DataFrame) -> pd.DataFrame:
    """Find the frontier of latency against throughput, one for each semantics and environment.

    A point is off it where `difference` can tell that another one is better in both. By the means alone more points
    are beaten. Which of the two holds, is in `standing`:

    - `frontier`: no other point beats it by the means.
    - `undecided`: one does, but launches can't tell.
    - `dominated`: launches can tell.
    - `untested`: another point beats it by the means, and there are too few launches to ask more.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The points of `over_launches`, sorted by semantics, environment and `latency_s`, with `standing` (null without
        latency or throughput); `on_frontier`, True where that is `frontier` or `undecided`; `frontier_probability`,
        how often the point is on the frontier when all means are drawn anew with the errors that `difference` finds,
        null where a point of that frontier has too few launches for one.
    """
    points = over_launches(frame).assign(standing=None, frontier_probability=np.nan)
    trials = measured(frame).dropna(subset=list(_OBJECTIVES))
    for _, there in trials.groupby("env_id", dropna=False):
        latency, rate = (logarithms_of(there, of) for of in _OBJECTIVES)
        rows = latency.points.merge(points.reset_index(), how="left", on=list(POINT))
        for _, group in rows.groupby("semantics", dropna=False):
            costs = group.assign(cost=-group["samples_per_s"])[["latency_s", "cost"]].to_numpy("float64")
            numbers = group.index.to_numpy()
            slower, higher = (contrasts(launches, numbers, numbers) for launches in (latency, rate))
            points.loc[group["index"], "standing"] = _standing(costs, slower=slower, higher=higher)
            drawn = _probability(slower, higher, together=_correlation(latency, rate))
            points.loc[group["index"], "frontier_probability"] = drawn
    points["on_frontier"] = points["standing"].isin(["frontier", "undecided"])
    return points.sort_values(["semantics", "env_id", "latency_s"], key=_in_order, ignore_index=True)


def _dominates(costs: Numbers) -> NDArray[np.bool_]:
    """(row, other), True where the row is no worse in all and better in one."""
    no_worse = np.asarray((costs[:, None] <= costs).all(axis=2))
    return no_worse & ~no_worse.T


def _standing(costs: Numbers, *, slower: Contrasts, higher: Contrasts) -> NDArray[np.str_]:
    beaten = _dominates(costs).T
    told = beaten & slower.greater & higher.greater.T
    untested = beaten & ~(slower.tested & higher.tested)
    kinds = [told.any(axis=1), untested.any(axis=1), beaten.any(axis=1)]
    return np.select(kinds, ["dominated", "untested", "undecided"], "frontier")


def _probability(slower: Contrasts, higher: Contrasts, *, together: float) -> Numbers | float:
    """How often each point is on the frontier of drawn means; nan where an error is not known.

    Args:
        slower: of latencies, each point to each.
        higher: of throughputs.
        together: correlation of the errors of a point's two.
    """
    if not (slower.tested & higher.tested).all():
        return np.nan
    others = ~np.eye(len(slower.estimate), dtype=np.bool_)
    rng = np.random.default_rng(0)
    noise, more = rng.normal(size=(2, _DRAWS, len(others)))
    latencies = slower.estimate[:, 0] + noise @ _root(slower.reach * others)
    rates = higher.estimate[:, 0] + (together * noise + (1 - together**2) ** 0.5 * more) @ _root(higher.reach * others)
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
    return float(products / size) if size > 0 else 0.0


def _in_order(column: pd.Series) -> pd.Series:
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
