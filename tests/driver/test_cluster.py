"""Clusters of several nodes on this machine: code that travels, slots, nodes that never come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from tests.conftest import Command
from tests.three_nodes import SWEEP, folder, nodes

pytestmark = pytest.mark.ray
__all__ = ["folder", "nodes"]  # fixtures


def test_a_cluster_gets_the_code_and_refuses_at_once_what_it_cannot_hold(
    nodes: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> None:
    arguments = [
        folder / "sweep.py",
        "--address",
        nodes.address,
        "--results",
        folder / "r",
        "--set",
        "workers=2,5",
    ]
    arguments += ["--set", "env.NCCL_ALGO=Ring", "--set", "workload.algorithm=Ring"]
    done = dtsweep_command("run", *arguments, folder=tmp_path_factory.mktemp("cwd"))
    assert done.returncode == 4, done.stderr
    assert "4 nodes, 3 CPUs" in done.stderr
    frame = dtsweep.load(folder / "r").set_index(["workers", "placement"])
    assert frame["status"].to_dict() == {
        (2, "strict_spread"): "ok",
        (2, "strict_pack"): "infeasible",
        (5, "strict_spread"): "infeasible",
        (5, "strict_pack"): "infeasible",
    }
    assert "2 workers of 1 CPU on one node don't fit" in frame.loc[(2, "strict_pack")]["reason"]
    trial = frame.loc[(2, "strict_spread")]
    assert (trial["hosts"], json.loads(trial["environment"])) == (2, {"NCCL_ALGO": "Ring"})
    ranks = pd.read_parquet(folder / "r" / "ranks")
    assert set(ranks["node_id"]) < {node.node_id for node in nodes.worker_nodes}
    assert ranks["node_id"].nunique() == 2
    assert ranks["device"].notna().all()


def test_which_ray_is_used_is_what_ray_users_expect(
    nodes: Any, folder: Path, dtsweep_command: Command
) -> None:
    address = nodes.address
    asked = ["plan", folder / "sweep.py", "--results", folder / "r"]
    told = dtsweep_command(*asked, "--address", "auto", folder=folder)
    assert "3 trials don't fit" in told.stdout, told.stderr
    wrong = dtsweep_command(*asked, "--address", "127.0.0.1:1", folder=folder)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "--address local" in wrong.stderr
    # Nothing fits, so nothing is started: which Ray was asked is said all the same.
    too_large = ["--set", "workers=5", "--results", folder / "r"]
    for environment in ({"RAY_ADDRESS": address}, {}):
        done = dtsweep_command("run", folder / "sweep.py", *too_large, folder=folder, **environment)
        assert done.returncode == 4, done.stderr
        assert f"using Ray at {address}: 4 nodes" in done.stderr


def test_small_worlds_run_at_the_same_time_and_a_large_one_has_all_nodes(
    nodes: Any, folder: Path, dtsweep_command: Command
) -> None:
    text = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=3")
    measure = "repeats=2, half_width=None, min_seconds=1, max_seconds=2"
    text = text.replace("repeats=1, half_width=None, canary=False, min_seconds=0", measure)
    text = text.replace('"placement": [', '"micro_batch": [1, 2], "placement": [')
    (folder / "sweep.py").write_text(text)
    arguments = ["--address", nodes.address, "--results", folder / "r", "--set", "placement=pack"]
    arguments += ["--set", "workers=1,3", "--set", "workload.slow=true"]
    done = dtsweep_command("run", folder / "sweep.py", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(folder / "r" / "trials").sort_values("started_at")
    assert rows["status"].unique().tolist() == ["ok"]
    assert rows.query("role == 'trial'")["trial_id"].nunique() == 8
    ranks = pd.read_parquet(folder / "r" / "ranks")
    nodes_of = ranks.groupby("attempt_id")["node_id"].agg(set)
    began = rows["started_at"]
    ended = began + pd.to_timedelta(
        rows[["startup_s", "trial_s", "overhead_s"]].sum(axis=1), unit="s"
    )
    together = 0
    for one in rows.index:
        for other in rows.index[rows.index > one]:
            if began[one] < ended[other] and began[other] < ended[one]:
                together += 1
                attempts = rows["attempt_id"]
                assert nodes_of[attempts[one]].isdisjoint(nodes_of[attempts[other]])
    assert together
    assert {len(nodes_of[row.attempt_id]) for row in rows.query("workers == 3").itertuples()} == {3}
    # One canary was measured next to others, and again alone.
    assert rows["interference"].notna().any()
