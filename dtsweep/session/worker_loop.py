"""The loop in which a session's ranks take tasks, and where their output goes."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.session.deadlines import collective_timeout_s
from dtsweep.session.logs import RankLog, open_log
from dtsweep.session.memory_kills import memory_kills
from dtsweep.sweep.task import Task
from dtsweep.sweep.values import is_own_loop

if TYPE_CHECKING:
    from dtsweep.worker.rank import RankContext


def take_tasks(config: Mapping[str, Any]) -> None:
    """Run in each rank of a TorchTrainer: take tasks until there are none.

    Args:
        config: `slot`, which hands out tasks; `session`, its name; `settings`, `variables`,
            `secrets`: see `trainer`.
    """
    import ray.train

    from dtsweep.session.attempt import run_attempt
    from dtsweep.worker.world import ProcessGroups

    slot, session = config["slot"], config["session"]
    os.environ.update(config["secrets"])
    rank = ray.train.get_context().get_world_rank()
    log = _redirect_output(session, rank)
    context = _as_rank(rank, config, log)
    is_first = True
    groups = ProcessGroups()
    itself = ray.get_runtime_context().current_actor
    ray.get(slot.register.remote(session, rank, context.facts, itself, context.secrets))
    while (handed_out := ray.get(slot.next_task.remote(session, rank, memory_kills()))) is not None:
        task, shards, assignment = handed_out
        groups.wait_up_to(collective_timeout_s(task))
        if groups.enter(**asdict(assignment)):
            context = replace(context, exchanges={})
        if assignment.rank is None:
            continue
        begin_trial(log, task)
        warmed_up = functools.partial(
            slot.warmed_up.remote, session, task.attempt_id, assignment.rank
        )
        result = run_attempt(
            replace(context, rank=assignment.rank), task, servers=shards, on_warm=warmed_up
        )
        result = replace(result, position=groups.position)
        if is_first:
            # It imports half of torch, which costs 0.1 s to go through. Not after every trial: what
            # is frozen stays.
            gc.freeze()
            is_first = False
        ray.get(
            slot.finished.remote(session, task.attempt_id, assignment.rank, result, context.secrets)
        )


def _as_rank(rank: int, config: Mapping[str, Any], log: RankLog) -> RankContext:
    """Make this process a rank, with a server of processes where its workload is a loop."""
    import ray.train.torch
    import torch

    from dtsweep.session.loop_process import LoopProcesses
    from dtsweep.worker.rank import become_rank
    from dtsweep.worker.step_watch import StepWatch

    settings = config["settings"]
    torch.set_num_threads(settings.cpus_per_worker)
    search_path = [*sys.path]
    workload = settings.code.load()
    loop_runner = None
    if is_own_loop(workload):
        # Its imports go on while the rank is set up.
        loop_runner = LoopProcesses(settings.code, search_path)
    watch = StepWatch(functools.partial(config["slot"].add_line.remote, config["session"], rank))
    context = become_rank(
        rank,
        ray.train.torch.get_device(),
        workload=workload,
        own_variables=config["variables"],
        packages=settings.code.packages,
        node_id=ray.get_runtime_context().get_node_id(),
        log=str(log.path),
    )
    _close_in_children()
    if loop_runner is not None:
        loop_runner.wait_until_ready()
    return replace(context, watch=watch, loop_runner=loop_runner)


def _close_in_children() -> None:
    """Close the sockets that are open now in every child that this process forks from now on.

    Ray and the other ranks notice that a process has ended by its closed sockets. A child that
    lives on, such as a loader's process, would keep copies of them open, and the end would show at
    a deadline.
    """
    os.register_at_fork(after_in_child=functools.partial(_close, _open_sockets()))


def _open_sockets() -> dict[int, str]:
    """Sockets of this process, such as `{7: "socket:[4711]"}`, by file descriptor."""
    sockets = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile, as the one of this listing
            name = str(entry.readlink())
            if name.startswith("socket:"):
                sockets[int(entry.name)] = name
    return sockets


def _close(sockets: Mapping[int, str]) -> None:
    """Close those that are the same as before; a number may be another file's by now."""
    now = _open_sockets()
    for number, name in sockets.items():
        if now.get(number) == name:
            os.close(number)


def collectives_begun(_actor: Any) -> dict[str, int] | None:
    """Number of collectives that this rank has begun, by group; asked by the session at a hang.

    None where it has no group.
    """
    from torch import distributed

    from dtsweep.sync.groups import positions

    if not distributed.is_initialized():
        return None
    return positions()


def _redirect_output(session: str, rank: int) -> RankLog:
    """Send all output of this process to a file on its node; a signal writes its stacks there."""
    path, file = open_log(session, rank)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):
            stream.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    # Half a surrogate can't be encoded; no trial fails by what it prints.
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    # Not to sys.stderr, which a workload may close.
    faulthandler.enable(file=file)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
    log = RankLog(path)
    log.keep_bounded()
    return log


def begin_trial(log: RankLog, task: Task) -> None:
    """Name in a log the trial whose output follows."""
    log.begin_trial()
    sys.stderr.write(f"{task.heading}\n")
