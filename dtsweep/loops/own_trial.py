"""A trial of a training loop of the user: a script, or a function of the point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from dtsweep.loops.own_loop import OwnLoop
from dtsweep.loops.script import calls_at_its_end, run_script, script_here
from dtsweep.loops.script_folder import ScriptFolder, own_folder
from dtsweep.measure.store_group import StoreGroup
from dtsweep.metrics.own_loops import broken_promise
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.arguments import command_line
from dtsweep.sweep.task import Task
from dtsweep.worker.rank import RankContext
from dtsweep.worker.world import own_group, without_group
from dtsweep.workloads.own import Script


def measure_own(context: RankContext, task: Task, on_warm: Callable[[float], None]) -> Measured:
    """Run the loop of a task on this rank until it is measured.

    Raises:
        LoopTooShortError: the loop ended before it was measured.
    """
    point = task.point_of(context.workload)
    workload = point.workload
    workers = point.workers
    with ExitStack() as stack:
        if isinstance(workload, Script):
            words = command_line(workload.arguments, workload.values(point))
            script = script_here(Path(workload.path))
            # Left after the group: ranks that wait for this one then know that it has ended.
            folder = stack.enter_context(_folder(context, task, script, words))
            train: Callable[[], object] = functools.partial(
                run_script, folder.copy_of(script), words, copies=folder.places
            )
            store = stack.enter_context(without_group(f"{task.attempt_id}/script"))
        else:
            train = functools.partial(_run_function, functools.partial(workload.train, point))
            store = stack.enter_context(own_group(f"{task.attempt_id}/loop"))
        group = StoreGroup(store if workers > 1 else None, rank=context.rank, workers=workers)
        measured = OwnLoop(task, context, group, on_warm=on_warm).run(train)
    given = workload.given_samples(point)
    if given is not None:
        measured = replace(
            measured, samples_per_step=given, usual_samples=given, samples_reason=None
        )
    reason = broken_promise(point, workload.driven, measured.usual_samples)
    if reason is None:
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


def _run_function(train: Callable[[], object]) -> None:
    """Run a function that trains until it ends, and what it registers for the end of a process."""
    with calls_at_its_end():
        train()
