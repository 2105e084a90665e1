"""What one of several ranks finds, and all have to know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed import P2POp
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from dtsweep import Sweep
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.groups import send_and_receive
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.in_step import StepError, together
from dtsweep.worker.rank import become_rank
from tests.ranks import free_ports, join, leave, spawn

WORKERS = 3
CAPABILITIES = ("9.0", "7.5", "8.0")
"""Compute capability of each rank's GPU, as its machine tells it."""


@dataclass(frozen=True)
class Unbuilt:
    """A workload that is refused before it is built."""

    def build(self) -> nn.Module:
        raise AssertionError

    def batch(self, samples: range, device: torch.device) -> Tensor:
        raise AssertionError

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        raise AssertionError


def try_tf32(rank: int, folder: Path, port: int, task: Task) -> None:
    """Run a trial in tf32 on ranks whose facts tell of GPUs of three ages."""
    join(rank, workers=WORKERS, port=port)
    context = become_rank(rank, torch.device("cpu"), workload=task.point.workload, own_variables=())
    machine = {"compute_capability": CAPABILITIES[rank]}
    context = replace(context, facts=replace(context.facts, machine=machine))
    result = run_attempt(context, task)
    (folder / f"{rank}").write_text(f"{result.status}: {result.reason}")
    leave()


def test_a_precision_that_one_rank_does_not_have_is_refused_on_all(tmp_path: Path) -> None:
    sweep = Sweep(workload=Unbuilt(), axes={"workers": [WORKERS]})
    point = Point(workers=WORKERS, precision="tf32", workload=Unbuilt())
    spawn(try_tf32, args=(tmp_path, *free_ports(1), task_of(sweep, point)), nprocs=WORKERS)
    words = {(tmp_path / f"{rank}").read_text() for rank in range(WORKERS)}
    assert words == {
        "infeasible: precision tf32 needs GPUs of compute capability 8.0 or higher, here: 7.5; "
        "use fp32"
    }


def fail_after_messages(rank: int, folder: Path, port: int) -> None:
    """Send from rank 0 to rank 1, as a branch of a tree; then rank 1 fails by itself."""
    join(rank, workers=WORKERS, port=port)
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
        (folder / f"{rank}").write_text(str(error))
    except Exception as error:  # noqa: BLE001  # what it is, the test reads
        (folder / f"{rank}").write_text(repr(error))
    leave()


def test_ranks_that_sent_different_numbers_of_messages_are_in_step(tmp_path: Path) -> None:
    spawn(fail_after_messages, args=(tmp_path, *free_ports(1)), nprocs=WORKERS)
    words = {(tmp_path / f"{rank}").read_text() for rank in range(WORKERS)}
    assert words == {
        "a step after the window failed on rank 1: ValueError: the third layer is missing"
    }
