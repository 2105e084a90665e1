"""How fast the nodes of a mixed cluster are beside each other, by the trials that ran on several of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.launches import measured
from dtsweep.analysis.load import load
from dtsweep.analysis.variance import Numbers
from dtsweep.results.store import Results

if TYPE_CHECKING:
    import pandas as pd

_NODE = ["node", "device"]
_COLUMNS = [*_NODE, "speed", "speed_low", "speed_high", "fastest", "trials", "launches", "reason"]


def node_speeds(results: Results | str | Path) -> pd.DataFrame:
    """Estimate the speed of each node relative to the fastest one that it can be compared with.

    By what a step takes a rank without waiting for others (`work_s` of `ranks`), the mean over a node's ranks of the
    same trial. Nodes are compared within trials alone: a trial that ran on two of them says how fast the one is beside
    the other, whatever was trained, and trials link nodes that no trial had both of. Least squares on logarithms, with
    a level of its own for each trial.

    Args:
        results: the place, or what `dtsweep.load` would read.

    Returns:
        One row per node and device model, the fastest first: `node`, `device`; `speed`, 1 for the `fastest` node of
        those that trials link it with, whose name that column has, and less for others; `speed_low` and `speed_high`,
        its 95 % interval over trials, null where there are no more of them than speeds need; `trials` that it
        shared with another node, and their `launches` (trials of one launch share what is particular to it); `reason`,
        why there is no speed: no trial ran on it and on another one.

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    store = results if isinstance(results, Results) else Results(results)
    trials = measured(load(store))
    ranks = store.table("ranks", attempts=set(trials["attempt_id"])).select(["attempt_id", *_NODE, "work_s"])
    return speeds_of(trials, ranks.to_pandas())


def speeds_of(trials: pd.DataFrame, ranks: pd.DataFrame) -> pd.DataFrame:
    """Compute what `node_speeds` returns.

    Args:
        trials: as `measured` gives them; `attempt_id` and `launch` are read.
        ranks: one row per rank of any attempt: `attempt_id`, `node`, `device`, `work_s`.
    """
    ranks = ranks.merge(trials[["attempt_id", "launch"]], on="attempt_id")
    work = ranks.assign(log=np.log(ranks["work_s"].astype("float64")))
    cells = work.groupby(["attempt_id", "launch", *_NODE], dropna=False)["log"].mean().dropna().reset_index()
    nodes = work.groupby(_NODE, dropna=False, as_index=False).size()[_NODE]
    cells = cells[cells.groupby("attempt_id")["log"].transform("size") > 1]
    rows = nodes.merge(_of_sets(cells), how="left", on=_NODE).reindex(columns=_COLUMNS)
    rows[["trials", "launches"]] = rows[["trials", "launches"]].fillna(0).astype("int64")
    rows["reason"] = rows["speed"].isna().map({True: "no trial ran on it and on another node", False: None})
    return rows.sort_values("speed", ascending=False, kind="stable", ignore_index=True)


def _of_sets(cells: pd.DataFrame) -> pd.DataFrame:
    """Speeds of the nodes that shared a trial, each set that trials link by itself."""
    import pandas as pd
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = cells.groupby(_NODE, dropna=False)
    nodes, trials = groups.ngroup().to_numpy(), cells["attempt_id"].factorize()[0]
    found = groups.agg(trials=("attempt_id", "nunique"), launches=("launch", "nunique")).reset_index()
    size = len(found) + trials.max(initial=-1) + 1
    links = coo_array((np.ones(len(nodes)), (nodes, trials + len(found))), shape=(size, size))
    sets = connected_components(links, directed=False)[1][: len(found)]
    parts = []
    for number in np.unique(sets):
        here = sets[nodes] == number
        _, own = np.unique(nodes[here], return_inverse=True)
        estimate, reach = _relative(cells["log"].to_numpy()[here], own, np.unique(trials[here], return_inverse=True)[1])
        rows = found[sets == number].assign(speed=np.exp(estimate))
        rows = rows.assign(speed_low=np.exp(estimate - reach), speed_high=np.exp(estimate + reach))
        parts.append(rows.assign(fastest=rows["node"].iloc[int(estimate.argmax())]))
    return pd.concat(parts) if parts else found.reindex(columns=_COLUMNS)


def _relative(logs: Numbers, nodes: NDArray[np.intp], trials: NDArray[np.intp]) -> tuple[Numbers, Numbers]:
    """Logarithms of the speeds of linked nodes beside the fastest, and half of their 95 % intervals.

    These hold for all pairs of nodes together (Bonferroni): which node is the fastest is found from the same noise.

    Args:
        logs: (cells,) logarithms of times.
        nodes: (cells,) number of the node.
        trials: (cells,) number of the trial.
    """
    from scipy.special import stdtrit

    each_node, each_trial = np.eye(nodes.max() + 1)[nodes], np.eye(trials.max() + 1)[trials]
    counts = each_trial.sum(axis=0)
    # What is left of nodes and times when each trial has a level of its own.
    design = each_node - (each_trial @ ((each_trial.T @ each_node) / counts[:, None]))
    values = logs - (each_trial @ (each_trial.T @ logs / counts))
    inverse = np.linalg.pinv(design.T @ design)
    slowness = inverse @ (design.T @ values)
    free = len(logs) - len(counts) - (len(slowness) - 1)
    residual = float(((values - design @ slowness) ** 2).sum())
    first = int(slowness.argmin())
    estimate: Numbers = slowness[first] - slowness
    spread = np.diag(inverse) + inverse[first, first] - 2 * inverse[first]
    variance = np.maximum(spread, 0) * (residual / free if free > 0 else np.nan)
    pairs = len(slowness) * (len(slowness) - 1) / 2
    reach: Numbers = stdtrit(float(free) if free > 0 else np.nan, 1 - 0.025 / pairs) * variance**0.5
    reach[first] = 0.0
    return estimate, reach
