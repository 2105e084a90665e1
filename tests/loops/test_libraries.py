"""Loops of Transformers, Lightning and Accelerate, on two ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, workloads
from tests.loops import library_loops
from tests.loops.trials import run_trial

pytestmark = pytest.mark.slow

MEASURE = Measure(
    half_width=None, warmup_steps=3, min_steps=10, min_seconds=0, max_seconds=60, canary=False
)

LOOPS = {
    "transformers": lambda: workloads.HuggingFace(library_loops.make_trainer),
    "lightning": lambda: workloads.Lightning(library_loops.make_lightning),
    "accelerate": lambda: workloads.Accelerate(library_loops.train_with_accelerate),
    "dispatcher": lambda: workloads.Accelerate(library_loops.train_with_dispatcher),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_steps_and_samples_of_a_library_are_counted(name: str, tmp_path: Path) -> None:
    pytest.importorskip({"dispatcher": "accelerate"}.get(name, name))
    fields: dict[str, Any] = {"workers": 2, "micro_batch": 4, "accumulation": 2}
    ended = run_trial(LOOPS[name](), MEASURE, folder=tmp_path, **fields)
    for result in ended.results:
        measured = result.measured
        assert (result.status, result.reason) == ("ok", None)
        assert measured is not None
        assert measured.window_steps >= 10
        # Two passes a step.
        assert measured.samples_reason is None
        assert measured.samples_per_step == 8
        assert (measured.gradients_agree, measured.parameters_agree) == (True, True)
    assert {path.name for path in tmp_path.iterdir()} <= {"trainer_output"}
