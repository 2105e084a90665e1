"""A written cluster file, whose node types Ray's own autoscaler runs with fake nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dtsweep
from tests.cluster_files.written import sweep_text, written
from tests.conftest import Command
from tests.growing import LIVES, growing_head, told_by


@pytest.mark.ray
def test_the_nodes_of_a_written_file_come_for_the_worlds_and_go(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "study.py").write_text(
        sweep_text(workers=[1, 3], placement="strict_spread").replace(
            "Measure(repeats=2)", "Measure(repeats=1, half_width=None, canary=False, min_steps=5)"
        )
    )
    machine = ("--instance", "small", "--cpus-per-node", 1)
    (config,) = written(dtsweep_command, tmp_path, "--to", "ray", "--spot", *machine)
    assert config["max_workers"] == 3
    with growing_head(
        tmp_path / "cluster.yaml",
        v2=True,
        most=config["max_workers"],
        types=config["available_node_types"],
    ) as address:
        options = ["--address", address, "--results", tmp_path / "r", "--node-timeout", 120]
        done = dtsweep_command(
            "run", "study.py", *options, folder=tmp_path, RAY_AUTH_MODE="disabled"
        )
        lives = json.loads(told_by(LIVES, address))
        markets = told_by(MARKETS, address).split()
    assert done.returncode == 0, done.stderr
    assert "an autoscaler that can have up to 3 nodes of worker" in done.stderr
    frame = dtsweep.load(tmp_path / "r")
    assert sorted(frame["workers"]) == [1, 3]
    assert set(frame["status"]) == {"ok"}
    # A node per worker of the largest world, which no other world needed; all are gone again.
    assert [cpus for _, _, cpus in lives] == [1, 1, 1]
    assert all(gone > 0 for _, gone, _ in lives)
    assert markets == ["spot"] * 3


MARKETS = """
import sys
from ray._raylet import GcsClient

infos = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
print(*(info.labels["ray.io/market-type"] for info in infos if info.resources_total.get("CPU")))
"""
"""Prints the market of each node with CPUs, by Ray's label, of those that are gone too."""
