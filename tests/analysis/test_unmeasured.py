"""Points that were not measured, next to recommended ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtsweep.analysis import Study, recommend
from dtsweep.analysis.unmeasured import NoPoint, Unmeasured, best_unmeasured
from dtsweep.report.predicted_point import unmeasured_json, words_on
from dtsweep.sweep.goal import Goal
from tests import frames


def row(workers: int, micro_batch: int, **others: Any) -> dict[str, Any]:
    step = 0.02 + 0.001 * micro_batch
    rate = workers * micro_batch / step
    return {
        "workers": workers,
        "micro_batch": micro_batch,
        "samples_per_s": rate,
        "samples_per_s_error": 0.002 * rate,
        "step_p50_s": step,
        "overlap": True,
        "harness": "ray",
        "session": f"session{workers}",
        **others,
    }


def found(
    rows: list[dict[str, Any]], goal: Goal | None = None, *, env_id: str = "a1b2"
) -> tuple[Unmeasured | NoPoint, list[str]]:
    study = Study(frames.trials(*rows, workload=None, workload_layers=None))
    (recommendation,) = [one for one in recommend(study, goal) if one.point["env_id"] == env_id]
    one = best_unmeasured(study, recommendation)
    return one, words_on(one, recommendation)


GRID = [row(workers, batch) for workers in (1, 2, 4) for batch in (4, 16, 64)]


def test_a_point_that_is_predicted_to_be_better_has_a_command_that_measures_it() -> None:
    one, words = found(GRID[:-1])
    assert isinstance(one, Unmeasured)
    assert one.is_better
    assert one.settings == {"workers": "4", "micro_batch": "64"}
    assert words[-1] == "    dtsweep run SWEEP.py --set workers=4 --set micro_batch=64"
    assert words[0].startswith("Predicted, not measured: workers=4 micro_batch=64 has ")
    assert json.loads(json.dumps(unmeasured_json(one)))["candidates"] == 1


def test_a_worse_point_is_not_taken() -> None:
    one, words = found(GRID[1:])
    assert isinstance(one, Unmeasured)
    assert not one.is_better
    assert words[0].startswith(
        "Predicted: of 1 point without a trial, no interval is wholly better."
    )


def test_points_that_were_skipped_or_failed_are_not_taken() -> None:
    for status in ("skipped", "oom_device"):
        last = GRID[-1] | {"status": status, "env_id": None}
        assert isinstance(found([*GRID[:-1], last])[0], NoPoint)


@pytest.mark.parametrize(
    ("rows", "goal", "reason"),
    [
        (GRID, Goal(maximize="samples_per_s"), "each allowed combination of measured values has"),
        (GRID[:-1], Goal(minimize="step_p99_s"), "step_p99_s is not predicted; ask for one of"),
        (
            GRID[:-1],
            Goal(minimize="latency_s", where="latency_s < 0.03"),
            "no combination of measured values without a trial meets the goal",
        ),
        (
            # One worker is slower than half the fastest point.
            GRID[1:],
            Goal(minimize="latency_s", least_rate=0.5),
            "no combination of measured values without a trial meets the goal",
        ),
        (
            [one | {"micro_batch": None} for one in GRID],
            Goal(maximize="samples_per_s"),
            "the measured trials have no micro_batch",
        ),
    ],
)
def test_without_a_point_a_sentence_says_why(
    rows: list[dict[str, Any]], goal: Goal, reason: str
) -> None:
    one, words = found([row | {"step_p99_s": 1.0} for row in rows], goal)
    assert words[0].startswith(f"Predicted: {reason}")
    assert unmeasured_json(one)["reason"].startswith(reason)


def test_a_trial_in_another_environment_is_not_one_in_this() -> None:
    elsewhere = [one | {"env_id": "elsewhere"} for one in GRID]
    one, _ = found([*GRID[:-1], *elsewhere])
    assert isinstance(one, Unmeasured)
    assert isinstance(found([*GRID[:-1], *elsewhere], env_id="elsewhere")[0], NoPoint)
