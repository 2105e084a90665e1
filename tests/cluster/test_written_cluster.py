"""The example file of a cluster, whose node types Ray's own autoscaler runs with fake nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import dtsweep
from tests.conftest import Command
from tests.growing import LIVES, growing_head, told_by
from tests.pages import ROOT

SWEEP = """
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=16, sequence=8, data="pydoc"),
    axes={"workers": [2], "placement": ["strict_spread"]},
    measure=Measure(repeats=1, half_width=None, canary=False, min_steps=5),
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
)
"""


@pytest.mark.ray
def test_the_nodes_of_the_file_come_for_the_worlds_and_go(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "study.py").write_text(SWEEP)
    config = yaml.safe_load((ROOT / "clusters" / "aws.yaml").read_text("utf-8"))
    # What a reader changes: two small machines of the spot market.
    worker = config["available_node_types"]["worker"]
    worker["resources"] = {"CPU": 1}
    worker["labels"]["ray.io/market-type"] = "spot"
    worker["max_workers"] = 2
    types = config["available_node_types"]
    with growing_head(tmp_path / "cluster.yaml", v2=True, most=2, types=types) as address:
        options = ["--address", address, "--results", tmp_path / "r", "--node-timeout", 120]
        done = dtsweep_command(
            "run", "study.py", *options, folder=tmp_path, RAY_AUTH_MODE="disabled"
        )
        lives = json.loads(told_by(LIVES, address))
        markets = told_by(MARKETS, address).split()
    assert done.returncode == 0, done.stderr
    assert "an autoscaler that can have up to 2 nodes of worker" in done.stderr
    assert dtsweep.load(tmp_path / "r")["status"].tolist() == ["ok"]
    # A node per worker, of which all are gone again.
    assert [cpus for _, _, cpus in lives] == [1, 1]
    assert all(gone > 0 for _, gone, _ in lives)
    assert markets == ["spot"] * 2


MARKETS = """
import sys
from ray._raylet import GcsClient

infos = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
print(*(info.labels["ray.io/market-type"] for info in infos if info.resources_total.get("CPU")))
"""
"""Prints the market of each node with CPUs, by Ray's label, of those that are gone too."""
