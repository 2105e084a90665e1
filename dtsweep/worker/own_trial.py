"""A trial of a training loop of the user: a script, or a function of the point."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dtsweep.measure.store_group import StoreGroup
from dtsweep.metrics.own_loops import broken_promise
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.task import Task
from dtsweep.worker.own_loop import OwnLoop
from dtsweep.worker.rank import RankContext
from dtsweep.worker.script import calls_at_its_end, command_line, run_script
from dtsweep.worker.world import own_group, without_group
from dtsweep.workloads.own import Script


def measure_own(context: RankContext, task: Task, on_warm: Callable[[float], None]) -> Measured:
    """Run the loop of a task on this rank until it is measured.

    Args:
        context: this rank.
        task: its workload is a training loop.
        on_warm: called with the slowest warm-up step in seconds, just before the window.

    Raises:
        LoopTooShortError: the loop ended before it was measured.
    """
    point = task.point_of(context.workload)
    workload = point.workload
    workers = point.workers
    if isinstance(workload, Script):
        words = command_line(workload.arguments, workload.values(point))
        train: Callable[[], object] = functools.partial(run_script, Path(workload.path), words)
        group_of_ranks = without_group(f"{task.attempt_id}/script")
    else:
        train = functools.partial(_run_function, functools.partial(workload.train, point))
        group_of_ranks = own_group(f"{task.attempt_id}/loop")
    with group_of_ranks as store:
        group = StoreGroup(store if workers > 1 else None, rank=context.rank, workers=workers)
        measured = OwnLoop(task, context, group, on_warm=on_warm).run(train)
    given = workload.samples_per_step
    if given is not None:
        measured = replace(
            measured, samples_per_step=given, usual_samples=given, samples_reason=None
        )
    reason = broken_promise(point, workload.driven, measured.usual_samples)
    if reason is None:
        return measured
    return replace(measured, batch_fault=("wrong_samples", reason))


def _run_function(train: Callable[[], object]) -> None:
    """Run a function that trains until it ends, and what it registers for the end of a process."""
    with calls_at_its_end():
        train()
