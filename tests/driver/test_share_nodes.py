"""Trials that run at the same time on one node, each in a session with its part of the CPUs."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command

pytestmark = pytest.mark.ray

SWEEP = '''
"""Which learning rate, on a machine that has room for two workers?"""
from dataclasses import dataclass

from dtsweep import Measure, Resources, Sweep

@dataclass(frozen=True)
class Small:
    def build(self):
        from torch import nn
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        import time
        import torch
        time.sleep(0.02)
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={"micro_batch": [1, 2, 3, 4, 5, 6, 7, 8]},
    measure=Measure(repeats=1, half_width=None, min_seconds=1, exchange="off"),
    resources=Resources(concurrent=2, share_nodes=True),
)
'''


def test_trials_of_one_worker_run_side_by_side_on_one_node_and_say_so(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "sweep.py").write_text(SWEEP)
    arguments = ["--address", ray_address, "--results", tmp_path / "r"]
    done = dtsweep_command("run", tmp_path / "sweep.py", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    assert rows["status"].unique().tolist() == ["ok"]
    # One canary ran next to others, and then had the node for itself.
    canaries = rows[rows["role"] == "canary"]
    alone = next(canaries[canaries["concurrent_trials"] == 0].itertuples())
    ended = alone.started_at + pd.Timedelta(seconds=alone.trial_s)
    others = rows[rows["attempt_id"] != alone.attempt_id]
    took = pd.to_timedelta(others[["startup_s", "trial_s"]].sum(axis=1), unit="s")
    overlap = (others["started_at"] < ended) & (others["started_at"] + took > alone.started_at)
    assert not overlap.any()
    assert (canaries["started_at"] < alone.started_at).any()
    trials = rows[rows["role"] == "trial"]
    assert (len(trials), trials["session"].nunique()) == (8, 2)
    together = trials[trials["concurrent_trials"] == 1]
    assert len(together) >= 4
    later = together[together["started_at"] > alone.started_at]
    assert len(later) >= 2
    assert later[["interference", "interference_low", "interference_high"]].notna().all(None)
    ranks = pd.read_parquet(tmp_path / "r" / "ranks")
    assert (ranks["node_id"].nunique(), ranks["pid"].nunique()) == (1, 2)
