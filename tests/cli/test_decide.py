"""Commands that read results, as a user calls them.

`tests/test_readme.py` starts each of them in a process with imports of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.pages import make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results of batchsize.py, one launch of each point."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    return folder


def test_recommend_gives_the_answer_and_the_code(study: Path, forked_command: Command) -> None:
    done = forked_command("recommend", "results/batchsize", folder=study)
    assert done.returncode == 0, done.stderr
    assert " ".join(done.stdout.split()).startswith(
        "Best of one launch each: ddp workers=2 micro_batch=64"
    )
    assert "One launch of each: it is better than every other one" in " ".join(done.stdout.split())
    assert "Next: run the sweep again, it goes on." in " ".join(done.stdout.split())
    assert "The drift of the machine is not known" in done.stdout
    assert "Point(workers=2, micro_batch=64" in done.stdout


def test_recommend_keeps_to_a_condition_and_prints_json(
    study: Path, forked_command: Command
) -> None:
    condition = ["--maximize", "samples_per_s", "--where", "latency_s <= 50ms and workers < 2"]
    done = forked_command("recommend", "results/batchsize", *condition, "--json", folder=study)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert set(found) == {
        *("goal", "point", "settings", "code", "answer", "is_decided", "zone", "confidence"),
        *("others", "alternatives"),
        *("unknown", "unmeasured", "slow", "implausible", "undecided", "drift"),
        *("remarks", "not_measured", "not_begun", "is_futile"),
    }
    assert found["goal"] == {
        "maximize": "samples_per_s",
        "minimize": None,
        "where": "latency_s <= 50ms and workers < 2",
        "allow": [],
        "least_rate": 0.0,
    }
    assert found["point"]["latency_s"] <= 0.05
    assert found["point"]["workers"] == 1
    assert found["drift"] is None
    assert "row" not in found["point"]
    assert found["settings"] == {"micro_batch": 16}
    assert set(found["code"]) == {"point", "command"}
    assert found["code"]["point"].splitlines()[0] == "Point(micro_batch=16)"
    assert "workload.width=128" in found["code"]["point"]
    assert found["code"]["command"] is None
    assert {row["is_allowed"] for row in found["alternatives"]} <= {True, False}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--where", "step_p99_s <= 1"], "none of"),
        (["--where", "latncy_s <= 1"], "did you mean 'latency_s'"),
        (
            ["--goal", "throughput", "--maximize", "samples_per_s"],
            "leave --maximize and --minimize out",
        ),
        (["--goal", "energy"], "energy_j_per_sample was not measured"),
        (["--allow", "local;stale"], "allow some of lossy, stale, local"),
    ],
)
def test_a_question_without_an_answer_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, study: Path, forked_command: Command
) -> None:
    done = forked_command("recommend", "results/batchsize", *arguments, folder=study)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_report_shows_frontiers_of_other_objectives_under_a_condition(
    study: Path, forked_command: Command
) -> None:
    asked = [
        "--minimize",
        "workers",
        "--maximize",
        "samples_per_s",
        "--where",
        "latency_s <= 150ms",
    ]
    done = forked_command("report", "results/batchsize", *asked, "--json", folder=study)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["frontier"]
    assert {row["meets"] for row in rows} == {True, False}
    assert all(row["latency_s"] <= 0.15 for row in rows if row["on_frontier"])
    exact = [row for row in rows if row["on_frontier"] and row["semantics"] == "exact"]
    assert {row["workers"] for row in exact} == {1, 2}
    shown = forked_command("report", "results/batchsize", *asked, folder=study)
    assert "latency_s <= 150ms" in shown.stdout


def test_report_says_how_long_training_takes(study: Path, forked_command: Command) -> None:
    done = forked_command("report", "results/batchsize", "--samples", "50000", folder=study)
    assert done.returncode == 0, done.stderr
    assert "Training on 50,000 samples" in done.stdout
    rows = json.loads(
        forked_command(
            "report", "results/batchsize", "--samples", "50000", "--json", folder=study
        ).stdout
    )["training_time"]
    assert all(abs(row["training_time_s"] * row["samples_per_s"] - 50_000) < 1e-3 for row in rows)


def test_report_refuses_an_objective_that_is_no_column(
    study: Path, forked_command: Command
) -> None:
    done = forked_command("report", "results/batchsize", "--minimize", "latency", folder=study)
    assert done.returncode == 2
    assert "did you mean 'latency_s'" in done.stderr


def test_a_condition_holds_for_the_whole_report(study: Path, forked_command: Command) -> None:
    asked = ["--samples", "50000", "--where", "workers<=1", "--json"]
    told = json.loads(forked_command("report", "results/batchsize", *asked, folder=study).stdout)
    assert {row["workers"] for row in told["training_time"]} == {1}
    assert {row["workers"] for row in told["frontier"] if row["on_frontier"]} == {1}
    assert told["scaling"] == told["worthwhile"] == []


def test_report_writes_a_page(study: Path, forked_command: Command) -> None:
    done = forked_command("report", "results/batchsize", "--html", "a.html", folder=study)
    assert done.returncode == 0, done.stderr
    assert "a.html written" in done.stderr
    assert done.stdout == ""
    assert "Best of one launch each" in (study / "a.html").read_text("utf-8")
    done = forked_command("report", "results/batchsize", "--html", "no/a.html", folder=study)
    assert done.returncode == 2
    assert "no/a.html can't be written" in done.stderr


def test_with_hosts_needs_a_page(study: Path, forked_command: Command) -> None:
    done = forked_command("report", "results/batchsize", "--with-hosts", folder=study)
    assert done.returncode == 2
    assert "add --html FILE" in done.stderr
