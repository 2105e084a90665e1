"""The control measurement: one point under torchrun, without Ray, giving the same row."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

# Before a group exists: its functions take the group as a default and would keep it from being destroyed, and a
# thread of gloo that still holds a tensor when Python ends aborts the process.
import torch.distributed.nn.functional
from torch import distributed

from dtsweep.errors import SweepError
from dtsweep.hardware.fingerprint import fingerprint
from dtsweep.hardware.memory import release_memory
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.metrics.breakdown import Outcome
from dtsweep.metrics.rows import settled, trial_row
from dtsweep.sweep.axes import Candidate, parse_setting
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.attempt import RankContext, attempt


def main(arguments: Sequence[str]) -> int:
    """Run one point under torchrun; rank 0 prints its row as JSON. Returns the exit code."""
    try:
        if "RANK" not in os.environ or not arguments:
            raise SweepError(
                "run it as: torchrun --nproc-per-node N -m dtsweep.worker SWEEP.py workers=N [axis=value …]"
            )
        settings = dict(parse_setting(text) for text in arguments[1:])
        sweep, found = read_sweep(arguments[0], settings)
        task = _only_order(sweep, found, workers=int(os.environ["WORLD_SIZE"]))
    except SweepError as error:
        print(f"dtsweep: {error}", file=sys.stderr)  # noqa: T201  # this is a command
        return 2
    device = _join(sweep, task)
    # The attempt's name is drawn: all ranks take rank 0's.
    tasks = [task]
    distributed.broadcast_object_list(tasks, src=0)
    outcome = _run(sweep, tasks[0], device)
    return 0 if outcome["status"] == "ok" else 1


def _join(sweep: Sweep, task: Task) -> torch.device:
    """Become a rank of torchrun's world, set up as a session sets up its ranks."""
    gpus = torch.cuda.is_available() and sweep.resources.gpus_per_worker != 0
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    torch.set_num_threads(sweep.resources.cpus_per_worker)
    os.environ.update({**sweep.resources.environment, **task.environment})
    distributed.init_process_group("nccl" if gpus else "gloo")
    return device


def _run(sweep: Sweep, task: Task, device: torch.device) -> Outcome:
    """Run the order on this rank; one rank prints the row."""
    known = fingerprint(device, own_variables={"OMP_NUM_THREADS", *sweep.resources.environment, *task.environment})
    context = RankContext(
        rank=distributed.get_rank(),
        device=device,
        workload=sweep.workload,
        telemetry=Telemetry(device),
        device_name=known["device"],
    )
    release_memory(device)
    gc.freeze()
    outcome = {**attempt(context, task), "facts": known}
    if "steps" not in outcome:
        # The others may wait for this rank in an exchange: no collective here. torchrun ends them.
        if distributed.distributed_c10d._get_default_store().add(f"failed/{task.attempt_id}", 1) == 1:
            _print_row(trial_row(sweep, task, {context.rank: outcome}))
        return outcome
    outcomes: list[Any] = [None] * distributed.get_world_size()
    distributed.gather_object(outcome, outcomes if context.rank == 0 else None)
    if context.rank == 0:
        _print_row(trial_row(sweep, task, settled(sweep, task, dict(enumerate(outcomes)))))
    distributed.destroy_process_group()
    return outcome


def _print_row(row: dict[str, Any]) -> None:
    print(json.dumps(row, default=str), flush=True)  # noqa: T201  # this is a command


def _only_order(sweep: Sweep, found: Sequence[Candidate], *, workers: int) -> Task:
    """Take the first point that can be measured; where axes have several values, those are the first ones."""
    possible = [candidate.point for candidate in found if candidate.reason is None]
    if not possible:
        raise SweepError(f"no point to measure: {found[0].reason}")
    point = possible[0]
    if point.workers != workers:
        raise SweepError(f"workers={point.workers}, but torchrun started {workers}; say workers={workers}")
    if MODES[point.sync].needs_ray:
        raise SweepError(f"{point.sync} needs Ray; use python -m dtsweep, or another sync here")
    return task_of(sweep, point)
