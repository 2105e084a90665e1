"""Published jobs as problems of a search: candidates, true step times, costs, hypervolume."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtsweep.inference.pareto import hypervolume_of, on_frontier
from dtsweep.predict.candidate_costs import latency_and_rate
from dtsweep.predict.gain import REFERENCE
from dtsweep.predict.setups import Setups
from tests.setups import setups_of

Numbers = NDArray[np.float64]

START_S = 30.0
"""Seconds of a launch of another world."""

STEPS = 40
"""Steps of a trial."""

JOBS = ("bert", "cifar10", "deepspeech2", "ncf")


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Grid of a job whose step times are known."""

    name: str
    setups: Setups
    step_s: Numbers
    """(n,) true step times: means over the placements of equal nodes, replicas and batch."""
    pass_s: Numbers
    """(n,) step time without the exposed exchange."""
    world: NDArray[np.int64]
    """(n,) number of the pair of nodes and replicas."""
    costs: Numbers
    """(n, 2) logarithms of latency and inverse rate, each scaled to 0 to 1."""

    @property
    def log_costs(self) -> Numbers:
        """(n, 2) logarithms of latency and inverse rate."""
        return latency_and_rate(self.setups.samples_per_step).log_costs(np.log(self.step_s))

    @property
    def window_s(self) -> Numbers:
        """(n,) accelerator-seconds of a window."""
        return np.asarray(self.setups.workers * STEPS * self.step_s)

    @property
    def launch_s(self) -> Numbers:
        """(n,) accelerator-seconds of a launch."""
        return np.asarray(self.setups.workers * START_S)

    @property
    def grid_s(self) -> float:
        """Accelerator-seconds of the whole grid, each trial in a launch of its own."""
        return float((self.window_s + self.launch_s).sum())

    def share_of_volume(self, rows: Sequence[int]) -> float:
        """Hypervolume of some candidates as a share of the grid's."""
        reference = np.full(2, REFERENCE)
        whole = hypervolume_of(self.costs, reference)
        return hypervolume_of(self.costs[list(rows)], reference) / whole

    def members(self, rows: Sequence[int]) -> list[int]:
        """Candidates of these that no other one of these dominates."""
        return [
            rows[place] for place in np.flatnonzero(on_frontier(self.costs[list(rows)])).tolist()
        ]


def read_problem(name: str) -> Problem:
    """Read a job from the folder `scaling` of `DTSWEEP_TEST_DATA`.

    Raises:
        SystemExit: the variable isn't set.
    """
    if "DTSWEEP_TEST_DATA" not in os.environ:
        raise SystemExit("set DTSWEEP_TEST_DATA to the folder that has `scaling`")
    folder = Path(os.environ["DTSWEEP_TEST_DATA"]) / "scaling" / name
    placed = pd.read_csv(folder / "placements.csv", dtype={"placement": str})
    placed["num_nodes"] = placed["placement"].str.len()
    placed["num_replicas"] = [sum(map(int, digits)) for digits in placed["placement"]]
    scaled = pd.read_csv(folder / "scalability.csv")
    keys = ["num_nodes", "num_replicas", "local_bsz"]
    rows = pd.concat([placed, scaled])[[*keys, "step_time", "sync_time"]]
    grid = rows.groupby(keys, as_index=False).mean()
    setups = setups_of(
        workers=grid["num_replicas"], nodes=grid["num_nodes"], micro_batch=grid["local_bsz"]
    )
    step_s = grid["step_time"].to_numpy(np.float64)
    log_costs = latency_and_rate(setups.samples_per_step).log_costs(np.log(step_s))
    return Problem(
        name=name,
        setups=setups,
        step_s=step_s,
        pass_s=(grid["step_time"] - grid["sync_time"]).to_numpy(np.float64),
        world=grid.groupby(keys[:2]).ngroup().to_numpy().astype(np.int64),
        costs=(log_costs - log_costs.min(axis=0)) / np.ptp(log_costs, axis=0),
    )
