from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dtsweep.cli.commands import cli
from tests.compare.stored_runs import store_run

RATES = {4: [100.0, 101.0, 99.0], 16: [200.0, 203.0, 198.0]}


def mixed(folder: Path) -> Path:
    """Results of trials that ran on a fast and a slow node."""
    ranks = [
        {"node": "node-a", "device": "NVIDIA H100", "work_s": 0.02},
        {"node": "node-b", "device": "NVIDIA A100", "work_s": 0.05},
    ]
    return store_run(folder, RATES, devices="NVIDIA A100, NVIDIA H100", session="one", ranks=ranks)


def reported(results: Path, *options: str) -> str:
    found = CliRunner().invoke(cli, ["report", str(results), *options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_report_has_the_speed_of_each_node_where_a_trial_ran_on_several_device_models(
    tmp_path: Path,
) -> None:
    lines = reported(mixed(tmp_path)).splitlines()
    (title,) = (
        number for number, line in enumerate(lines) if line.startswith("Nodes of different devices")
    )
    assert lines[title + 1].split() == ["node", "device", "speed", "trials", "launches"]
    rows = [line.split() for line in lines[title + 3 : title + 5]]
    assert rows == [
        ["node-a", "NVIDIA", "H100", "1.000", "6", "1"],
        ["node-b", "NVIDIA", "A100", "0.4000", "6", "1"],
    ]
    found = json.loads(reported(tmp_path, "--json"))["node_speeds"]
    assert [row["speed"] for row in found] == pytest.approx([1.0, 0.4])


def test_a_report_asks_for_the_nodes_of_the_points_that_meet_the_condition_alone(
    tmp_path: Path,
) -> None:
    found = json.loads(reported(mixed(tmp_path), "--json", "--where", "micro_batch<=4"))[
        "node_speeds"
    ]
    assert [row["trials"] for row in found] == [3, 3]


def test_a_report_on_one_device_model_says_nothing_of_nodes(tmp_path: Path) -> None:
    results = store_run(tmp_path, RATES)
    assert "Nodes of different devices" not in reported(results)
    assert json.loads(reported(results, "--json"))["node_speeds"] == []
