"""Worlds of different sizes in the same processes, one after the other."""

from __future__ import annotations

import importlib
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import distributed, nn
from torch.distributed import distributed_c10d
from torch.distributed.nn import functional
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from dtsweep.worker.world import ProcessGroups

PROCESSES = 4
WORLDS: list[tuple[int, ...]] = [(0, 1, 2, 3), (1, 3), (2,), (0, 2, 3), (0, 1, 2, 3), (0, 1)]
"""The processes of each; one after the other, again and again."""
ROUNDS = 5


def train(processes: int) -> float:
    """Five steps of a model on all ranks of this world; what they have learnt of each other."""
    rank = distributed.get_rank()
    model = DistributedDataParallel(nn.Linear(64, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model(torch.full((1, 64), float(rank + 1))).sum().backward()
        optimizer.step()
    gradient = model.module.weight.grad
    assert gradient is not None
    return float(gradient[0, 0]) / 5 if processes else 0.0


def resources() -> tuple[int, int, int]:
    process = psutil.Process()
    return process.num_threads(), process.num_fds(), threading.active_count()


def change_again_and_again(process: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=process, world_size=PROCESSES)
    groups, learnt, seen = ProcessGroups(), [], []
    groups.wait_up_to(60)
    for number in range(ROUNDS * len(WORLDS)):
        members = WORLDS[number % len(WORLDS)]
        is_in = process in members
        rank = members.index(process) if is_in else None
        groups.enter(
            number, rank=rank, workers=len(members), local_rank=rank or 0, local_workers=len(members), node_rank=0
        )
        if is_in:
            learnt.append((number, train(len(members)), os.environ.get("WORLD_SIZE"), os.environ.get("RANK")))
        if number % len(WORLDS) == len(WORLDS) - 1:
            seen.append(resources())
    torch.save((learnt, seen), folder / f"{process}.pt")
    # Who serves the store waits for the others.
    (folder / f"{process}.done").touch()
    while len(list(folder.glob("*.done"))) < PROCESSES:
        pass


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("worlds")
    spawn(change_again_and_again, args=(folder,), nprocs=PROCESSES)
    return [torch.load(folder / f"{process}.pt", weights_only=False) for process in range(PROCESSES)]


def test_each_world_exchanges_between_its_own_ranks(told: list[Any]) -> None:
    for process, (learnt, _) in enumerate(told):
        mine = [number for number in range(ROUNDS * len(WORLDS)) if process in WORLDS[number % len(WORLDS)]]
        assert [number for number, *_ in learnt] == mine
        for number, gradient, size, rank in learnt:
            members = WORLDS[number % len(WORLDS)]
            # The mean of what its ranks were given: 1, 2, …
            assert gradient == pytest.approx((len(members) + 1) / 2)
            if number:
                assert (size, rank) == (str(len(members)), str(members.index(process)))


def test_no_thread_or_descriptor_is_left_of_a_world(told: list[Any]) -> None:
    for _, seen in told:
        assert max(seen[1:]) <= seen[1], seen
        assert all(later <= seen[1] for later in seen[1:]), seen


SHORT_S, LATE_S = 2.0, 4.0
"""What a world was made with, and by how much one of its ranks is late."""


def wait_for_a_late_rank(process: int, folder: Path) -> None:
    timeout = timedelta(seconds=SHORT_S)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=process, world_size=2, timeout=timeout
    )
    groups = ProcessGroups()
    groups.wait_up_to(60)
    for world in range(2):
        groups.enter(world, rank=process, workers=2, local_rank=process, local_workers=2, node_rank=0)
        store = distributed_c10d.PrefixStore(f"looks {world}", distributed_c10d._get_default_store())
        if process == 1:
            time.sleep(LATE_S)
        both = torch.ones(1)
        distributed.all_reduce(both)
        distributed.barrier()
        if process == 1:
            time.sleep(LATE_S)
            store.set("look", "seen")
        assert (float(both), store.get("look")) == (2.0, b"seen")
    (folder / f"{process}.done").touch()
    while len(list(folder.glob("*.done"))) < 2:
        pass


def test_ranks_wait_for_each_other_as_long_as_a_task_says_not_as_their_world_was_made_with(tmp_path: Path) -> None:
    spawn(wait_for_a_late_rank, args=(tmp_path,), nprocs=2)


def exchange_with_gradients(process: int, folder: Path) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=process, world_size=2)
    # In a session it is imported when there is a group, which its functions then take for their default.
    importlib.reload(functional)
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    first = distributed_c10d._get_default_group()
    assert functional.all_reduce.__defaults__[-1] is first
    assert ShardedGradScaler.__init__.__defaults__[-1] is first
    groups = ProcessGroups()
    groups.wait_up_to(20)
    groups.enter(1, rank=0 if process == 0 else None, workers=1, local_rank=0, local_workers=1, node_rank=0)
    if process == 0:
        assert float(functional.all_reduce(torch.full((1,), 3.0))) == 3.0
        assert ShardedGradScaler.__init__.__defaults__[-1] is None
    (folder / f"{process}.done").touch()
    while len(list(folder.glob("*.done"))) < 2:
        pass


def test_differentiable_collectives_are_those_of_the_world(tmp_path: Path) -> None:
    spawn(exchange_with_gradients, args=(tmp_path,), nprocs=2)
