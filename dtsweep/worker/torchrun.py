"""The control measurement: one point under torchrun, without Ray, giving the same row.

`torchrun --nproc-per-node 2 -m dtsweep.worker SWEEP.py workers=2 sync=ddp` prints it as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import distributed

from dtsweep.errors import SweepError
from dtsweep.hardware.variables import NCCL_SETTINGS, set_defaults
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.provenance.sources import sources_of
from dtsweep.sweep.axes import Candidate, parse_setting
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import become_rank, cpus_here, take_device


def main(arguments: Sequence[str]) -> int:
    """Run one point under torchrun; rank 0 prints its row as JSON. Returns the exit code."""
    try:
        if "RANK" not in os.environ or not arguments:
            raise SweepError(
                "run it as: torchrun --nproc-per-node N -m dtsweep.worker SWEEP.py workers=N "
                "[axis=value …]"
            )
        settings = dict(parse_setting(text) for text in arguments[1:])
        sweep, candidates = read_sweep(arguments[0], settings)
        cpus = cpus_here(sweep.resources)
        sweep = replace(sweep, resources=replace(sweep.resources, cpus_per_worker=cpus))
        device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
        point = _only_point(candidates, workers=int(os.environ["WORLD_SIZE"]), device=device)
    except SweepError as error:
        print(f"dtsweep: {error}", file=sys.stderr)  # noqa: T201  # this is a command
        return 2
    os.environ.update({**sweep.resources.environment, **point.environment})
    backend = "gloo"
    if device.type == "cuda":
        backend = "nccl"
        set_defaults(NCCL_SETTINGS)
    distributed.init_process_group(backend)
    # The attempt's name is drawn: all ranks take rank 0's.
    tasks = [task_of(sweep, point)]
    distributed.broadcast_object_list(tasks, src=0)
    if _run(sweep, point, tasks[0], device).status == "ok":
        return 0
    return 1


def _run(sweep: Sweep, point: Point, task: Task, device: torch.device) -> RankResult:
    """Run the task on this rank; one rank prints the row."""
    variables = {"OMP_NUM_THREADS", *sweep.resources.environment, *point.environment}
    packages = sources_of(sweep.workload, file=sweep.file).packages
    context = become_rank(
        distributed.get_rank(),
        device,
        workload=sweep.workload,
        own_variables=variables,
        packages=packages,
    )
    result = run_attempt(context, task)
    if result.measured is None:
        # The others may wait for this rank in an exchange: no collective here. torchrun ends them.
        if (
            distributed.distributed_c10d._get_default_store().add(f"failed/{task.attempt_id}", 1)
            == 1
        ):
            rank = {context.rank: result}
            _print_row(
                trial_row(
                    sweep, point, task, {context.rank: context.facts}, rank, harness="torchrun"
                )
            )
        return result
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.gather_object((context.facts, result), gathered if context.rank == 0 else None)
    if context.rank == 0:
        facts = {rank: facts for rank, (facts, _) in enumerate(gathered)}
        results = with_warmup_marked(
            point, {rank: result for rank, (_, result) in enumerate(gathered)}
        )
        _print_row(trial_row(sweep, point, task, facts, results, harness="torchrun"))
    distributed.destroy_process_group()
    return result


def _print_row(row: dict[str, Any]) -> None:
    print(json.dumps(row, default=str), flush=True)  # noqa: T201  # this is a command


def _only_point(candidates: Sequence[Candidate], *, workers: int, device: torch.device) -> Point:
    """Take the first possible point, with the first values of its axes."""
    possible = [candidate.point for candidate in candidates if candidate.reason is None]
    if not possible:
        raise SweepError(f"no point to measure: {candidates[0].reason}")
    point = possible[0]
    if point.workers != workers:
        raise SweepError(
            f"workers={point.workers}, but torchrun started {workers}; say workers={workers}"
        )
    if reason := impossible(point, Harness(name="torchrun", has_gpus=device.type == "cuda")):
        raise SweepError(f"{reason}; use python -m dtsweep, or another value here")
    return point
