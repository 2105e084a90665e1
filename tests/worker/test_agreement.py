"""What one of several ranks finds, and all have to know; and ranks that lost another one."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing
from torch.distributed import P2POp
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from dtsweep import Measure, Sweep, workloads
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt, status_of
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.groups import send_and_receive
from dtsweep.worker.in_step import StepError, together
from dtsweep.worker.rank import become_rank
from dtsweep.worker.timing import window_limits
from tests.outcomes import Tokens
from tests.ranks import results_of

WORKERS = 3
CAPABILITIES = ("9.0", "7.5", "8.0")
"""Compute capability of each rank's GPU, as its machine tells it."""


class NoProcesses:
    """Refuses to run a training loop."""

    def run(self, *_: object) -> RankResult:
        raise AssertionError


def try_tf32(rank: int, task: Task, workload: Any) -> str:
    """Run a trial in tf32 on ranks whose facts tell of GPUs of three ages."""
    context = become_rank(rank, torch.device("cpu"), workload=workload, own_variables=())
    machine = {"compute_capability": CAPABILITIES[rank]}
    facts = replace(context.facts, machine=machine)
    context = replace(context, facts=facts, loop_runner=NoProcesses())
    result = run_attempt(context, task)
    return f"{result.status}: {result.reason}"


@pytest.mark.parametrize(
    ("workload", "sync"), [(Tokens(), "ddp"), (workloads.Script(__file__), AS_WRITTEN)]
)
def test_a_precision_that_one_rank_does_not_have_is_refused_on_all(
    workload: Any, sync: str
) -> None:
    # Its workload is refused before it is built.
    sweep = Sweep(workload=workload, axes={"workers": [WORKERS]})
    point = Point(workers=WORKERS, precision="tf32", workload=workload, sync=sync)
    assert set(results_of(try_tf32, task_of(sweep, point), workload, workers=WORKERS)) == {
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


# Messages of a rank whose peer has ended or stands still: really killed

LARGE = 2**24
"""Elements of an exchange that is still under way when the peer is killed."""

WAIT_S = {"frozen": 5.0, "after a timeout": 5.0}
"""Timeouts of moments that are seen by one; others have a minute."""


def exchange(rank: int, folder: Path, moment: str) -> None:
    """Exchange until the peer, rank 1, has gone at this moment; rank 0 writes what that came to."""
    torch.set_num_threads(1)
    place, timeout = f"file://{folder}/store", timedelta(seconds=WAIT_S.get(moment, 60.0))
    distributed.init_process_group("gloo", place, rank=rank, world_size=2, timeout=timeout)
    distributed.all_reduce(torch.ones(1))
    (folder / f"{rank}.joined").touch()
    try:
        _exchange_on(rank, moment)
    except RuntimeError as error:
        (folder / f"{rank}.error").write_text(f"{status_of(error)}\n{error}")
    os._exit(0)


def _exchange_on(rank: int, moment: str) -> None:
    if moment == "before" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if moment == "frozen" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if moment == "after a timeout":
        if rank == 1:
            time.sleep(60)
        with pytest.raises(RuntimeError, match="Timed out"):
            distributed.all_reduce(torch.ones(1))
    while True:
        distributed.all_reduce(torch.ones(LARGE if moment == "within" else 1))


def told(folder: Path, moment: str) -> str:
    """Status and words of the error that rank 0 has raised."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=exchange, args=(rank, folder, moment)) for rank in range(2)]
    for process in ranks:
        process.start()
    if moment == "within":
        while not (folder / "1.joined").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        ranks[1].kill()
    ranks[0].join(120)
    for process in ranks:
        process.kill()
        process.join()
    return (folder / "0.error").read_text()


@pytest.mark.parametrize(
    "moment", ["before", "within", *(pytest.param(slow, marks=pytest.mark.slow) for slow in WAIT_S)]
)
def test_a_rank_that_lost_its_peer_is_not_at_fault(tmp_path: Path, moment: str) -> None:
    assert told(tmp_path, moment).startswith("collateral\n")


def shortest_windows(rank: int) -> list[float]:
    """Of a window with an energy counter on no rank, and on the second one alone."""
    energy = Measure(energy=True, min_seconds=2, max_seconds=30)
    return [
        window_limits(energy, torch.device("cpu"), counts_energy=has).min_seconds
        for has in (False, rank == 1)
    ]


def test_one_rank_that_counts_energy_makes_the_window_long_on_all() -> None:
    assert results_of(shortest_windows, workers=2) == [[2, 5]] * 2
