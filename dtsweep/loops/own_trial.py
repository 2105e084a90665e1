"""A trial of a training loop of the user: a script, or a function of the point."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from torch import distributed
from torch.distributed import distributed_c10d

from dtsweep.loops.own_loop import OwnLoop
from dtsweep.loops.script import interpreter_kept, run_exit_functions, run_script, script_here
from dtsweep.loops.script_folder import ScriptFolder, own_folder
from dtsweep.measure.store_group import StoreGroup
from dtsweep.metrics.own_loops import broken_promise
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.arguments import command_line
from dtsweep.sweep.task import Task
from dtsweep.worker.rank import RankContext
from dtsweep.worker.world import torchrun_variables
from dtsweep.workloads.own import Script


def measure_own(context: RankContext, task: Task, on_warm: Callable[[float], None]) -> Measured:
    """Run the loop of a task on this rank until it is measured.

    What it changes in the process stays. A process group of before is destroyed.

    Raises:
        LoopTooShortError: the loop ended before it was measured.
    """
    point = task.point_of(context.workload)
    workload, workers = point.workload, point.workers
    _leave_group()
    variables = torchrun_variables(context.store, rank=context.rank, workers=workers)
    os.environ.update(variables)
    group = StoreGroup(context.store, rank=context.rank, workers=workers)
    with ExitStack() as stack:
        if isinstance(workload, Script):
            words = command_line(workload.arguments, workload.values(point))
            script = script_here(Path(workload.path))
            folder = stack.enter_context(_folder(context, task, script, words))
            if not context.ends_with_trial:
                stack.enter_context(interpreter_kept(folder.places))
            train: Callable[[], object] = functools.partial(
                run_script, folder.copy_of(script), words, copies=folder.places
            )
        else:
            _join_group(context, workers)
            train = functools.partial(workload.train, point)
        if context.ends_with_trial:
            stack.callback(run_exit_functions)
        measured = OwnLoop(task, context, group, on_warm=on_warm).run(train)
        if not context.ends_with_trial:
            _leave_group()
    given = workload.given_samples(point)
    if given is not None:
        measured = replace(
            measured, samples_per_step=given, usual_samples=given, samples_reason=None
        )
    reason = broken_promise(point, workload.driven, measured.usual_samples)
    if reason is None or measured.batch_fault:
        return measured
    return replace(measured, batch_fault=("wrong_samples", reason))


@contextmanager
def _folder(
    context: RankContext, task: Task, script: Path, words: Sequence[str]
) -> Iterator[ScriptFolder]:
    """The working directory of a script; files of the user's that have changed are noted."""
    start = Path(context.start_folder or Path.cwd())
    changes: list[str] = []
    try:
        with own_folder(task.attempt_id, start=start, script=script, arguments=words) as folder:
            changes = folder.changes
            yield folder
    finally:
        context.changed_files[:] = changes


def _join_group(context: RankContext, workers: int) -> None:
    """Be in a process group of all workers."""
    backend = "gloo"
    if context.device.type == "cuda":
        backend = "nccl"
    store: distributed_c10d.Store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    if context.store is not None:
        store = distributed_c10d.PrefixStore("own", context.store)
    distributed.init_process_group(
        backend,
        store=store,
        rank=context.rank,
        world_size=workers,
        timeout=store.timeout,  # type: ignore[attr-defined]  # missing in torch's stub
    )


def _leave_group() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
