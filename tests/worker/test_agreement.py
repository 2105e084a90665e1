"""What one of several ranks finds, and all have to know."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import distributed
from torch.distributed import P2POp
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from dtsweep import Sweep
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.groups import send_and_receive
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.in_step import StepError, together
from dtsweep.worker.rank import become_rank
from tests.outcomes import Tokens
from tests.ranks import results_of

WORKERS = 3
CAPABILITIES = ("9.0", "7.5", "8.0")
"""Compute capability of each rank's GPU, as its machine tells it."""


def try_tf32(rank: int, task: Task) -> str:
    """Run a trial in tf32 on ranks whose facts tell of GPUs of three ages."""
    context = become_rank(rank, torch.device("cpu"), workload=task.point.workload, own_variables=())
    machine = {"compute_capability": CAPABILITIES[rank]}
    context = replace(context, facts=replace(context.facts, machine=machine))
    result = run_attempt(context, task)
    return f"{result.status}: {result.reason}"


def test_a_precision_that_one_rank_does_not_have_is_refused_on_all() -> None:
    # Its workload is refused before it is built.
    sweep = Sweep(workload=Tokens(), axes={"workers": [WORKERS]})
    point = Point(workers=WORKERS, precision="tf32", workload=Tokens())
    assert set(results_of(try_tf32, task_of(sweep, point), workers=WORKERS)) == {
        "infeasible: precision tf32 needs GPUs of compute capability 8.0 or higher, here: 7.5; "
        "use fp32"
    }


def fail_after_messages(rank: int) -> str:
    """Send from rank 0 to rank 1, as a branch of a tree; then rank 1 fails by itself."""
    if rank == 0:
        send_and_receive([P2POp(distributed.isend, torch.ones(1), 1)])
    if rank == 1:
        send_and_receive([P2POp(distributed.irecv, torch.ones(1), 0)])

    def work() -> None:
        if rank == 1:
            raise ValueError("the third layer is missing")

    try:
        together(work, store=PrefixStore("work", _get_default_store()))
    except StepError as error:
        return str(error)
    return ""


def test_ranks_that_sent_different_numbers_of_messages_are_in_step() -> None:
    assert set(results_of(fail_after_messages, workers=WORKERS)) == {
        "a step after the window failed on rank 1: ValueError: the third layer is missing"
    }
