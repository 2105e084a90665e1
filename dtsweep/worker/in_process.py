"""A world of one rank in this very process: for a debugger, and to see a mistake at once. Neither Ray nor torchrun."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import distributed

from dtsweep.errors import SweepError
from dtsweep.sweep.settings import Resources, Sweep
from dtsweep.sweep.task import Task
from dtsweep.worker.rank import RankContext, become_rank, take_device

NO_LIMIT_S = 1e9
"""`max_seconds` while a debugger is attached: who looks at a variable must not end the window."""


def gpus_here(resources: Resources) -> int:
    """How many GPUs the one worker gets: what the sweep says, else one where there is one."""
    return int(torch.cuda.is_available()) if resources.gpus_per_worker is None else resources.gpus_per_worker


@contextmanager
def only_rank(sweep: Sweep) -> Iterator[RankContext]:
    """Be rank 0 of 1 for a while; threads, environment and garbage collection are given back.

    Raises:
        SweepError: this process is in a process group already.
    """
    if distributed.is_initialized():
        raise SweepError("this process is in a process group already; call destroy_process_group() first")
    threads, environment = torch.get_num_threads(), dict(os.environ)
    try:
        os.environ.update(sweep.resources.environment)
        device = take_device(sweep.resources, index=0)
        backend = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
        yield become_rank(0, device, workload=sweep.workload, own_variables=sweep.resources.environment)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        # What was frozen would never be collected, and this process goes on to do other things.
        gc.unfreeze()
        torch.set_num_threads(threads)
        os.environ.clear()
        os.environ.update(environment)


def without_deadline(task: Task) -> Task:
    """The task as it is, or without a limit of time while a debugger is attached."""
    if not is_debugged():
        return task
    return replace(task, measure=replace(task.measure, max_seconds=NO_LIMIT_S))


def is_debugged() -> bool:
    """Whether a debugger watches this process: by its trace function, or from Python 3.12 on by `sys.monitoring`."""
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    return sys.gettrace() is not None or watches
