"""Results that an earlier version wrote stay readable: loaded, reported, and named where they can't be added to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import dtsweep
from tests.conftest import Command
from tests.pages import ROOT

OLD = ROOT / "tests" / "data" / "results_schema_2"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A copy, which a command may write to."""
    shutil.copytree(OLD, tmp_path / "r")
    return tmp_path / "r"


def test_every_trial_is_loaded_with_its_numbers_and_no_harness() -> None:
    frame = dtsweep.load(OLD)
    assert len(frame) == 6
    assert (frame["status"] == "ok").all()
    assert frame["samples_per_s"].gt(0).all()
    assert frame["harness"].isna().all()
    assert len(dtsweep.load(OLD, canaries=True)) == 6 + 4


def test_the_analysis_finds_a_frontier_of_each_semantics() -> None:
    points = dtsweep.analysis.frontier(dtsweep.load(OLD))
    assert set(points.loc[points["on_frontier"], "semantics"]) == {"exact", "stale", "local"}
    assert points["latency_s"].gt(0).all()
    assert len(dtsweep.analysis.scaling(dtsweep.load(OLD))) == 6


def test_the_report_prints_them(results: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("report", results, folder=results)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Frontier ·") == 3
    told = json.loads(dtsweep_command("report", results, "--json", folder=results).stdout)
    assert (told["trials"], told["statuses"]) == (6, {"ok": 6})


def test_a_plan_says_why_they_are_not_added_to(results: Path, dtsweep_command: Command) -> None:
    sweep = ROOT / "sweeps" / "batchsize.py"
    done = dtsweep_command("plan", sweep, "--results", results, folder=results)
    assert done.returncode == 2
    assert "source of the workload" in done.stderr
    assert "--rerun all" in done.stderr
    anew = dtsweep_command("plan", sweep, "--results", results, "--rerun", "all", "--json", folder=results)
    assert json.loads(anew.stdout)["to_run"] == 30
