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


def test_lanes_run_side_by_side_on_nodes_of_their_own(
    nodes: Any, folder: Path, dtsweep_command: Command
) -> None:
    text = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=2").replace(
        "[1, 2, 5]", "[1]"
    )
    (folder / "sweep.py").write_text(text.replace("repeats=1", "repeats=2"))
    arguments = ["--address", nodes.address, "--results", folder / "r", "--set", "placement=pack"]
    done = dtsweep_command("run", folder / "sweep.py", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    ranks = pd.read_parquet(folder / "r" / "ranks")
    assert len(ranks) == 2
    assert ranks["node_id"].nunique() == 2
