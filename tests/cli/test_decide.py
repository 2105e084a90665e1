"""Commands that read results, as a user calls them."""

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


def test_recommend_names_a_point_how_sure_it_is_and_the_code(study: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("recommend", "results/batchsize", folder=study)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Recommended for the highest samples_per_s: ddp workers=2 micro_batch=64")
    assert "one launch each" in done.stdout
    assert "It gives up shorter steps" in done.stdout
    assert "Point(workers=2, micro_batch=64" in done.stdout
    assert "DistributedDataParallel(model)" in done.stdout


def test_recommend_keeps_to_a_condition_and_prints_json(study: Path, dtsweep_command: Command) -> None:
    condition = ["--maximize", "samples_per_s", "--where", "latency_s <= 50ms and workers < 2"]
    done = dtsweep_command("recommend", "results/batchsize", *condition, "--json", folder=study)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert set(found) == {
        *("goal", "point", "settings", "code", "sure", "others", "alternatives", "unknown", "implausible", "drift"),
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
    assert found["settings"] == {"micro_batch": 16}
    assert found["code"]["point"] == "Point(micro_batch=16)"
    assert {row["is_allowed"] for row in found["alternatives"]} <= {True, False}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--where", "step_p99_s <= 1"], "none of"),
        (["--where", "latncy_s <= 1"], "did you mean 'latency_s'"),
        (["--goal", "throughput", "--maximize", "samples_per_s"], "leave --maximize and --minimize out"),
        (["--goal", "energy"], "energy_j_per_sample was not measured"),
        (["--allow", "local;stale"], "allow some of lossy, stale, local"),
    ],
)
def test_a_question_without_an_answer_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, study: Path, dtsweep_command: Command
) -> None:
    done = dtsweep_command("recommend", "results/batchsize", *arguments, folder=study)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
