"""Loops of Transformers, Lightning and Accelerate, on two ranks and again in their processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import become_rank
from tests.loops import library_loops
from tests.ranks import results_of

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

BATCHES = (4, 8, 2, 4, 8)
"""Micro-batch of one trial after another."""


@dataclass(frozen=True)
class Trial:
    result: RankResult
    threads: int
    descriptors: int


def measure_on(rank: int, folder: Path, name: str) -> list[Trial]:
    os.chdir(folder)
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    workload = LOOPS[name]()
    sweep = Sweep(
        workload=workload,
        axes={"workers": [2], "micro_batch": sorted(set(BATCHES)), "accumulation": [2]},
        measure=MEASURE,
    )
    context = become_rank(rank, torch.device("cpu"), workload=sweep.workload, own_variables=())
    trials = []
    for number, batch in enumerate(BATCHES):
        point = Point(
            workload=sweep.workload, workers=2, micro_batch=batch, accumulation=2, sync=AS_WRITTEN
        )
        task = replace(task_of(sweep, point), attempt_id=f"attempt {number}")
        result = run_attempt(context, task)
        # While both ranks have their group.
        distributed.barrier()
        counts = [len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("task", "fd")]
        distributed.barrier()
        trials.append(Trial(result, *counts))
    return trials


@pytest.fixture(scope="module", params=list(LOOPS))
def trials(request: Any, tmp_path_factory: pytest.TempPathFactory) -> list[list[Trial]]:
    """Trials of one loop, of each rank."""
    library = {"dispatcher": "accelerate"}.get(request.param, request.param)
    pytest.importorskip(library)
    folder = tmp_path_factory.mktemp(request.param)
    found = results_of(measure_on, folder, request.param, workers=2)
    assert {path.name for path in folder.iterdir()} <= {"trainer_output"}
    return found


def test_steps_and_samples_of_a_library_are_counted(trials: list[list[Trial]]) -> None:
    for of_rank in trials:
        for trial, batch in zip(of_rank, BATCHES, strict=True):
            measured = trial.result.measured
            assert (trial.result.status, trial.result.reason) == ("ok", None)
            assert measured is not None
            assert measured.window_steps >= 10
            # Two passes a step.
            assert measured.samples_reason is None
            assert measured.samples_per_step == 2 * batch
            assert (measured.gradients_agree, measured.parameters_agree) == (True, True)


def test_nothing_of_a_library_stays_in_the_process(trials: list[list[Trial]]) -> None:
    for of_rank in trials:
        assert [trial.result.left_state for trial in of_rank] == [()] * len(BATCHES)
        # The first trial imports the library.
        assert len({trial.descriptors for trial in of_rank[1:]}) == 1
        assert len({trial.threads for trial in of_rank[1:]}) == 1
