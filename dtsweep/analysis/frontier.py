"""Which points are worth running: no other one is both faster per step and higher in throughput."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.launches import over_launches
from dtsweep.sweep.modes import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


def on_frontier(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the rows that no other row dominates.

    Args:
        costs: (trials, objectives), smaller is better; negate what should grow.

    Returns:
        (trials,), True on the frontier. Equal rows don't dominate each other.
    """
    dominated = [((costs <= row).all(axis=1) & (costs < row).any(axis=1)).any() for row in costs]
    return ~np.array(dominated, dtype=np.bool_)


def frontier(frame: pd.DataFrame) -> pd.DataFrame:
    """Find the frontier of latency against throughput, one for each semantics and environment.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The points of `over_launches` with `on_frontier`, sorted by semantics, environment and `latency_s`. A
        point without latency or throughput is never on a frontier.
    """
    points = over_launches(frame).assign(on_frontier=False)
    for _, rows in points.groupby(["semantics", "env_id"], dropna=False):
        measured = rows.dropna(subset=["latency_s", "samples_per_s"])
        costs = measured.assign(cost=-measured["samples_per_s"])[["latency_s", "cost"]].to_numpy("float64")
        points.loc[measured.index, "on_frontier"] = on_frontier(costs)
    return points.sort_values(["semantics", "env_id", "latency_s"], key=_in_order, ignore_index=True)


def _in_order(column: pd.Series) -> pd.Series:
    if column.name != "semantics":
        return column
    return column.map({semantics: order for order, semantics in enumerate(SEMANTICS)})
