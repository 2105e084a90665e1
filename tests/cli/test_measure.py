"""Commands that measure, as a program calls them: with --json there is nothing else on stdout."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Command
from tests.pages import ROOT


def test_a_run_prints_its_report_as_json(tmp_path: Path, forked_command: Command) -> None:
    sweep = [ROOT / "sweeps" / "own_model.py", "--set", "workload.width=16", "--results", "here"]
    done = forked_command("run", *sweep, "--in-process", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["statuses"]["ok"] == 1
    again = forked_command("report", "here", "--json", folder=tmp_path)
    assert json.loads(again.stdout) == report


def test_a_plan_prints_json(tmp_path: Path, forked_command: Command) -> None:
    done = forked_command("plan", ROOT / "sweeps" / "own_model.py", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["trials"]) == 6
