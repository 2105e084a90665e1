"""Relative speeds of the nodes of a mixed cluster, from trials that ran on several of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.launches import measured
from dtsweep.analysis.load import load
from dtsweep.errors import SweepError
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Reason
from dtsweep.results.store import Results

if TYPE_CHECKING:
    import pandas as pd

Indices = NDArray[np.intp]

_NODE = ["node", "device"]
_COLUMNS = [*_NODE, "speed", "speed_low", "speed_high", "fastest", "trials", "launches", "reason"]


def node_speeds(results: Results | str | Path) -> pd.DataFrame:
    """Estimate the speed of each node relative to the fastest one that it can be compared with.

    By what a step takes a rank without waiting for others (`work_s` of `ranks`), the mean over a
    node's ranks of the same trial. Nodes are compared within trials alone: a trial that ran on two
    of them says how fast the one is relative to the other, whatever was trained, and trials link
    nodes that no trial had both of. Least squares on logarithms: in each launch with a level of its
    own for each trial, then over launches, since what is particular to a launch is in all of its
    trials.

    Args:
        results: the place, or what `dtsweep.load` would read.

    Returns:
        One row per node and device model, the fastest first: `node`, `device`; `speed`, 1 for the
        `fastest` node of those that trials link it with, whose name that column has, and less for
        others; `speed_low` and `speed_high`, its 95 % interval over launches, null where there are
        no more of them than speeds need, as with one; `trials` that it shared with another node,
        and their `launches`; `reason`, a code of `dtsweep.inference.verdicts.Reason`, null where
        there is a speed.

    Raises:
        SweepError: Nothing is stored there; it is not a place.
        StorageError: It can't be read.
    """
    if not isinstance(results, Results | str | Path):
        raise SweepError(
            "node_speeds reads the table of ranks, too: give it the place of the results, not a "
            "table"
        )
    trials = measured(load(results))
    return speeds_of(trials, ranks_of(results, trials))


def ranks_of(results: Results | str | Path, trials: pd.DataFrame) -> pd.DataFrame:
    """Read what `speeds_of` needs to know of the ranks of trials.

    Raises:
        StorageError: It can't be read.
    """
    if isinstance(results, Results):
        store = results
    else:
        store = Results(results)
    ranks = store.table("ranks", attempts=set(trials["attempt_id"]))
    frame: pd.DataFrame = ranks.select(["attempt_id", *_NODE, "work_s"]).to_pandas()
    return frame


def speeds_of(trials: pd.DataFrame, ranks: pd.DataFrame) -> pd.DataFrame:
    """Compute what `node_speeds` returns."""
    ranks = ranks.merge(trials[["attempt_id", "launch"]], on="attempt_id")
    work = ranks.assign(log=np.log(ranks["work_s"].astype("float64")))
    cells = (
        work.groupby(["attempt_id", "launch", *_NODE], dropna=False)["log"]
        .mean()
        .dropna()
        .reset_index()
    )
    nodes = work.groupby(_NODE, dropna=False, as_index=False).size()[_NODE]
    cells = cells[cells.groupby("attempt_id")["log"].transform("size") > 1]
    rows = nodes.merge(_speeds_by_set(cells), how="left", on=_NODE).reindex(columns=_COLUMNS)
    rows[["trials", "launches"]] = rows[["trials", "launches"]].fillna(0).astype("int64")
    rows["reason"] = rows["speed"].isna().map({True: Reason.NO_SHARED_TRIAL.value, False: None})
    return rows.sort_values("speed", ascending=False, kind="stable", ignore_index=True)


def _speeds_by_set(cells: pd.DataFrame) -> pd.DataFrame:
    """Speeds of the nodes that shared a trial, each set that trials link by itself."""
    import pandas as pd

    groups = cells.groupby(_NODE, dropna=False)
    counts = groups.agg(
        trials=("attempt_id", "nunique"), launches=("launch", "nunique")
    ).reset_index()
    nodes = groups.ngroup().to_numpy().astype(np.intp)
    trials, launches = (
        cells[name].factorize()[0].astype(np.intp) for name in ("attempt_id", "launch")
    )
    nodes, launches, logs = _slowness_by_launch(nodes, trials, launches, cells["log"].to_numpy())
    sets = _linked_sets(nodes, launches)
    parts = []
    for number in np.unique(sets):
        in_set = sets[nodes] == number
        set_nodes, set_launches = (
            np.unique(array[in_set], return_inverse=True)[1] for array in (nodes, launches)
        )
        estimate, half_width = _relative_speeds(logs[in_set], set_nodes, set_launches)
        rows = counts[sets == number].assign(speed=np.exp(estimate))
        rows = rows.assign(
            speed_low=np.exp(estimate - half_width), speed_high=np.exp(estimate + half_width)
        )
        parts.append(rows.assign(fastest=rows["node"].iloc[int(estimate.argmax())]))
    if not parts:
        return counts.reindex(columns=_COLUMNS)
    joined: pd.DataFrame = pd.concat(parts)
    return joined


def _linked_sets(nodes: Indices, trials: Indices) -> Indices:
    """Number the sets of nodes that trials, or launches, link: one number for each node."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = nodes.max(initial=-1) + 1
    size = count + trials.max(initial=-1) + 1
    links = coo_array((np.ones(len(nodes)), (nodes, trials + count)), shape=(size, size))
    sets: Indices = connected_components(links, directed=False)[1][:count].astype(np.intp)
    return sets


def _slowness_by_launch(
    nodes: Indices, trials: Indices, launches: Indices, logs: Numbers
) -> tuple[Indices, Indices, Numbers]:
    """Relative step time of each node in each launch, among nodes linked by trials of that launch.

    Returns:
        One entry per node, launch and set of nodes that trials of it link: the node, the number of
        the set, which counts as a launch, and the logarithm.
    """
    parts = [(nodes[:0], launches[:0], logs[:0])]
    count = 0
    for launch in np.unique(launches):
        in_launch = launches == launch
        launch_nodes, node_numbers = np.unique(nodes[in_launch], return_inverse=True)
        trial_numbers = np.unique(trials[in_launch], return_inverse=True)[1]
        # Sets of nodes that nothing links have levels that compare with nothing.
        sets = _linked_sets(node_numbers, trial_numbers)
        slowness = _least_squares(logs[in_launch], node_numbers, trial_numbers)[0]
        parts.append((launch_nodes, count + sets, slowness))
        count += int(sets.max()) + 1
    of_nodes, of_sets, of_logs = (np.concatenate(column) for column in zip(*parts, strict=True))
    return of_nodes, of_sets, of_logs


def _least_squares(
    logs: Numbers, nodes: Indices, trials: Indices
) -> tuple[Numbers, Numbers, float]:
    """Fit how slow nodes are, where each trial has a level of its own.

    Returns:
        Logarithms; their covariances, as multiples of the residual's variance; the sum of squares
        that is left.
    """
    each_node = np.eye(nodes.max() + 1)[nodes]
    each_trial = np.eye(trials.max() + 1)[trials]
    counts = each_trial.sum(axis=0)
    # What is left of nodes and times when each trial has a level of its own.
    design = each_node - (each_trial @ ((each_trial.T @ each_node) / counts[:, None]))
    values = logs - (each_trial @ (each_trial.T @ logs / counts))
    inverse: Numbers = np.linalg.pinv(design.T @ design)
    slowness: Numbers = inverse @ (design.T @ values)
    return slowness, inverse, float(((values - design @ slowness) ** 2).sum())


def _relative_speeds(logs: Numbers, nodes: Indices, launches: Indices) -> tuple[Numbers, Numbers]:
    """Speeds of linked nodes relative to the fastest one (logarithms), and their half-widths.

    These hold for all pairs of nodes together (Bonferroni): which node is the fastest is found from
    the same noise.

    Args:
        logs: (cells,) how slow a node was in a launch, a logarithm.
        nodes: (cells,) number of the node.
        launches: (cells,) number of the launch.
    """
    from scipy.special import stdtrit

    slowness, inverse, residual = _least_squares(logs, nodes, launches)
    free = len(logs) - (int(launches.max()) + 1) - (len(slowness) - 1)
    first = int(slowness.argmin())
    estimate: Numbers = slowness[first] - slowness
    factors = np.diag(inverse) + inverse[first, first] - 2 * inverse[first]
    variance = np.maximum(factors, 0) * (residual / free if free > 0 else np.nan)
    pairs = len(slowness) * (len(slowness) - 1) / 2
    half_width: Numbers = (
        stdtrit(float(free) if free > 0 else np.nan, 1 - 0.025 / pairs) * variance**0.5
    )
    half_width[first] = 0.0
    return estimate, half_width
