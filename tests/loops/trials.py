"""Trials of training loops: each rank is a process of its own, which ends with the trial."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from ray import cloudpickle
from torch import distributed

from dtsweep import Measure, Point, Sweep
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import outcome_of
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import become_rank
from tests.ranks import spawn


@dataclass(frozen=True)
class Ended:
    """A trial that has ended."""

    results: list[RankResult]
    """By rank."""

    said: list[str]
    """Outputs of the ranks."""


def run_trial(workload: Any, measure: Measure, *, folder: Path, **fields: Any) -> Ended:
    """Run a training loop at a point with these fields, from a folder."""
    axes = {"workers": [1], **{name: [value] for name, value in fields.items()}}
    sweep = Sweep(workload=workload, axes=axes, measure=measure)
    point = Point(workload=sweep.workload, sync=AS_WRITTEN, **fields)
    task = task_of(sweep, point)
    with TemporaryDirectory() as place:
        arguments = (task, cloudpickle.dumps(sweep.workload), folder, Path(place))
        spawn(_be_rank, args=arguments, nprocs=point.workers)
        results = [
            pickle.loads((Path(place) / f"{rank}.result").read_bytes())
            for rank in range(point.workers)
        ]
        said = [(Path(place) / f"{rank}.said").read_text() for rank in range(point.workers)]
        return Ended(results, said)


def _be_rank(rank: int, task: Task, pickled: bytes, folder: Path, place: Path) -> None:
    os.chdir(folder)
    file = os.open(place / f"{rank}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    sys.stdout, sys.stderr = os.fdopen(1, "w", 1), os.fdopen(2, "w", 1)
    torch.set_num_threads(1)
    workload = pickle.loads(pickled)
    context = become_rank(rank, torch.device("cpu"), workload=workload, own_variables=())
    store = None
    workers = task.point.workers
    if workers > 1:
        store = distributed.FileStore(str(place / "store"), workers)  # type: ignore[attr-defined]  # missing in torch's stub
    result = outcome_of(replace(context, store=store, ends_with_trial=True), task)
    sys.stdout.flush()
    (place / f"{rank}.result").write_bytes(pickle.dumps(result))
