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


def test_a_plan_expects_the_cost_and_says_what_it_assumes(
    tmp_path: Path, forked_command: Command
) -> None:
    arguments = ["plan", ROOT / "sweeps" / "own_model.py", "--price", "2"]
    done = forked_command(*arguments, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    cost = json.loads(done.stdout)["expected_cost"]
    assert 0 < cost["low_usd"] < cost["middle_usd"] < cost["high_usd"]
    said = " ".join(forked_command(*arguments, folder=tmp_path).stdout.split())
    assert "expected cost $" in said
    assert all(assumption in said for assumption in cost["assumptions"])
    without = forked_command(*arguments[:2], "--json", folder=tmp_path)
    assert json.loads(without.stdout)["expected_cost"] is None


def test_what_is_wrong_with_prices_or_a_limit_of_cost_is_one_line(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "prices.toml").write_text("[gpu]\nusd_per_huor = 2")
    sweep = ["run", ROOT / "sweeps" / "own_model.py", "--in-process"]
    for options, message in {
        ("--prices", "prices.toml"): "did you mean 'usd_per_hour'?",
        ("--prices", "prices.toml", "--price", "1"): "give one",
        ("--max-cost", "3"): "a limit of cost needs the prices of nodes: add --prices FILE, or",
        ("--goal", "cost"): "the goal asks for a cost, and nodes have no price: add --prices",
    }.items():
        done = forked_command(*sweep, *options, folder=tmp_path)
        assert done.returncode == 2, options
        assert len(done.stderr.splitlines()) == 1
        assert message in done.stderr


def test_a_limit_before_the_first_trial_is_exit_code_3_and_no_mistake(
    tmp_path: Path, forked_command: Command
) -> None:
    sweep = ["run", ROOT / "sweeps" / "own_model.py", "--in-process"]
    done = forked_command(*sweep, "--price", "1", "--max-cost", "1e-9", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "goes on" in done.stderr.splitlines()[-1]
