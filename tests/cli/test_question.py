"""Options of the command line that say what is measured until it is decided."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep import Goal, Measure, Sweep, SweepError, workloads
from dtsweep.cli import cli
from dtsweep.cli.decide import print_results
from dtsweep.cli.options import with_question
from dtsweep.cli.plan_table import plan_json, print_plan
from dtsweep.metrics.rows import task_row
from dtsweep.plan.plan import Plan, make_plan, policy_of
from dtsweep.results.pack import unmeasured_files
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.goal import GOALS, Question
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types
from tests.cli.called import as_json, in_one_line
from tests.linear import sweep_text
from tests.measured import Machine
from tests.pages import ROOT

GRID = Measure(repeats=2)
OWN_GOAL = 'goal=Goal(minimize="latency_s", where="workers<=2"), indifference=0.1,'
SWEEP = Sweep(workload=workloads.Gpt(), axes={"workers": [1, 2]})


def write(folder: Path, settings: str = "") -> str:
    path = folder / "study.py"
    text = sweep_text({"workers": [1, 2]}, measure="Measure()", more=settings)
    path.write_text(f"from dtsweep import Goal\n{text}")
    return str(path)


def question(folder: Path, settings: str, *options: str) -> dict[str, Any]:
    """The question of a plan with these options."""
    plan = as_json("plan", write(folder, settings), "--results", folder / "r", *options)
    asked: dict[str, Any] = plan["question"]
    return asked


def as_values(asked: Question) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(asked.as_json())
    return values


def test_a_goal_of_the_command_line_takes_the_place_of_the_sweeps_own(tmp_path: Path) -> None:
    options = ("--goal", "energy", "--indifference", "5%", "--confidence", "0.9")
    asked = question(tmp_path, OWN_GOAL, *options, "--max-launches", "4")
    energy = Question(goal=GOALS["energy"], indifference=0.05, confidence=0.9, max_launches=4)
    assert asked == as_values(energy)
    asked = question(tmp_path, OWN_GOAL, "--goal", "frontier")
    assert asked == as_values(Question(indifference=0.1, max_launches=3))
    asked = question(tmp_path, OWN_GOAL, "--where", "workers<=1")
    goal = Goal(minimize="latency_s", where="workers<=1")
    assert asked == as_values(Question(goal=goal, indifference=0.1))


def test_the_same_trials_are_asked_for_whatever_the_goal_is() -> None:
    asked = with_question(SWEEP, {"goal": "energy", "where": "workers<=1"})
    plans = [make_plan(sweep, candidates(sweep), []) for sweep in (SWEEP, asked)]
    first, second = ([trial.trial_id for trial in plan.to_run] for plan in plans)
    assert first == second


@pytest.mark.parametrize(
    ("options", "measure", "message"),
    [
        ({"goal": "energy"}, GRID, r"--goal .* Measure\(repeats=2\), which measures a plain grid;"),
        ({"max_launches": 4}, GRID, "--max-launches can't be used with Measure"),
        ({"goal": "frontier", "where": "workers<=1"}, Measure(), "--where is a condition of a goa"),
        ({"indifference": 3.0}, Measure(), "indifference=3 must be above 0 and below 1"),
    ],
)
def test_an_option_that_can_not_be_meant_is_refused(
    options: dict[str, Any], measure: Measure, message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        with_question(replace(SWEEP, measure=measure), options)


def printed(plan: Plan) -> str:
    """Text of a plan, in one line."""
    text = StringIO()
    print_plan(plan, None, console=Console(file=text), where="results/study", axes=["workers"])
    return " ".join(text.getvalue().split())


def test_a_plan_says_that_rounds_follow_and_how_many_launches_at_most(tmp_path: Path) -> None:
    asking = ("plan", write(tmp_path), "--results", tmp_path / "r")
    said = in_one_line(*asking, "--max-launches", "5")
    assert "2 trials to run" in said
    assert "then rounds of the contenders, at most 5 launches of a point" in said
    Path(asking[1]).write_text(sweep_text({"workers": [1, 2]}, measure="Measure(repeats=1)"))
    assert "then rounds" not in in_one_line(*asking)
    plan = make_plan(SWEEP, candidates(SWEEP), [])
    most = "then rounds of the contenders, at most 3 launches of a point and 4 in all"
    assert most in printed(plan)
    assert plan_json(plan, None)["most_launches"] == 4
    done = replace(plan, to_run=[], done=plan.to_run)
    assert "no round follows; a run prints the answer" in printed(done)
    assert "no round follows" not in printed(replace(done, question=None))


def test_the_saved_file_of_a_script_has_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    monkeypatch.chdir(tmp_path)
    options = ("--goal", "fast-validation", "--where", "workers<=2", "--max-launches", "4")
    cli(["script", "train.py", "--save", "sweep.py", *options], standalone_mode=False)
    goal = Goal(minimize="latency_s", least_rate=0.5, where="workers<=2")
    assert read_sweep("sweep.py")[0].question == Question(goal=goal, max_launches=4)
    cli(["script", "train.py", "--save", "named.py", "--goal", "energy"], standalone_mode=False)
    assert "    goal='energy',\n" in Path("named.py").read_text()
    grid = ["script", "train.py", "--measure", "repeats=2", "--confidence", "90%"]
    with pytest.raises(SweepError, match="--confidence can't be used with Measure"):
        cli(grid, standalone_mode=False)


@pytest.mark.slow
def test_a_report_after_a_run_answers_the_question_of_that_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = Sweep(workload=workloads.Gpt(), axes={"micro_batch": [1, 2]}, goal="throughput")
    machine = Machine(sweep, lambda point: 100.0)
    machine.finish(policy_of(sweep))
    rows = [{**row, "started_at": datetime(2026, 1, 1, tzinfo=UTC)} for row in machine.rows]
    types = column_types(sweep.workload)
    Results(tmp_path).write(unmeasured_files(rows, workload_types=types))
    # Nothing was left to measure, so no row has the question that was asked last.
    asked = Question(goal=GOALS["throughput"], indifference=0.2)
    print_results(str(tmp_path), as_json=True, question=asked)
    (answer,) = json.loads(capsys.readouterr().out)["recommendations"]
    assert answer["zone"] == 0.2


@pytest.mark.parametrize("role", ["trial", "canary"])
def test_a_question_whose_first_attempt_was_cut_has_a_report(
    role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, points = read_sweep(ROOT / "sweeps" / "batchsize.py")
    assert sweep.question is not None
    point = points[0].point
    row = task_row(sweep, point, task_of(sweep, point)) | {"role": role, "status": "budget"}
    row |= {"reason": "cut", "started_at": datetime(2026, 11, 26, tzinfo=UTC)}
    Results(tmp_path / "r").commit(row, workload_types=column_types(sweep.workload))
    print_results(str(tmp_path / "r"), as_json=False, question=sweep.question)
    assert "Frontier" not in capsys.readouterr().out
