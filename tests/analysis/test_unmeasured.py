"""Points that were not measured, next to recommended ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtsweep.analysis import Study, recommend
from dtsweep.analysis.unmeasured import Unmeasured, best_unmeasured
from dtsweep.errors import SweepError
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


def found(rows: list[dict[str, Any]], **goal: Any) -> tuple[Unmeasured | None, list[str]]:
    study = Study(frames.trials(*rows, workload=None, workload_layers=None))
    (recommendation,) = recommend(study, **goal)
    one = best_unmeasured(study, recommendation)
    return one, words_on(one, recommendation)


GRID = [row(workers, batch) for workers in (1, 2, 4) for batch in (4, 16, 64)]


def test_a_point_that_is_predicted_to_be_better_has_a_command_that_measures_it() -> None:
    one, words = found(GRID[:-1])
    assert one is not None
    assert one.is_better
    assert one.settings == {"workers": "4", "micro_batch": "64"}
    assert words[-1] == "    dtsweep run SWEEP.py --set workers=4 --set micro_batch=64"
    assert words[0].startswith("Predicted, not measured: workers=4 micro_batch=64 has ")
    assert json.loads(json.dumps(unmeasured_json(one)))["candidates"] == 1


def test_a_worse_point_is_not_taken() -> None:
    one, words = found(GRID[1:])
    assert one is not None
    assert not one.is_better
    assert words[0].startswith(
        "Predicted: of 1 point without a trial, no interval is wholly better."
    )


def test_points_that_were_skipped_or_failed_are_not_taken() -> None:
    for status in ("skipped", "oom_device"):
        assert found([*GRID[:-1], GRID[-1] | {"status": status}])[0] is None


def test_where_all_was_measured_nothing_is_predicted() -> None:
    assert found(GRID)[0] is None


def test_goals_by_what_is_not_predicted_are_an_error() -> None:
    study = Study(frames.trials(*(one | {"step_p99_s": 1.0} for one in GRID)))
    (recommendation,) = recommend(study, Goal(minimize="step_p99_s"))
    with pytest.raises(SweepError, match="step_p99_s is not predicted; leave --predicted out"):
        best_unmeasured(study, recommendation)
