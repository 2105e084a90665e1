"""Shards of the parameter server on a real Ray: failed starts, backup workers, killed replicas."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ray
import torch
from numpy.typing import NDArray
from torch import nn

from dtsweep.cluster.connect import connected
from dtsweep.measure.clock import CpuClock
from dtsweep.metrics.rank_result import RankFacts
from dtsweep.session.session_settings import Code
from dtsweep.session.shards import ShardError, load_code, ranks_of_shards, start_shard
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.sync.parameter_server import ParameterServer
from dtsweep.sync.passes import make_optimizer
from tests.outcomes import facts
from tests.ranks import alone

pytestmark = pytest.mark.ray

NO_MODULE, LEAVES, WAITS, NAMES_GPUS = (
    Code(pickled=pickled, folder=None)
    for pickled in (
        b"cno_such_module\nNet\n.",
        b"cos\n_exit\n(I1\ntR.",
        b"ctime\nsleep\n(I600\ntR.",
        b"cbuiltins\nexec\n(Vimport os; raise OSError(os.environ['CUDA_VISIBLE_DEVICES'])\ntR.",
    )
)
"""What a workload's code may do to whoever loads it."""


@pytest.fixture(scope="module")
def here(ray_address: str) -> Iterator[str]:
    """The id of a Ray's one node."""
    with connected(ray_address, folder=None):
        yield ray.get_runtime_context().get_node_id()


@pytest.mark.parametrize(
    ("code", "seconds", "status", "reason"),
    [
        (
            NO_MODULE,
            60,
            "user_error",
            " can't load the workload: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (LEAVES, 60, "collateral", " ended while it started (ActorDiedError)"),
        (WAITS, 2, "hang", " was not ready after 2 s: does an import wait for something?"),
    ],
)
def test_a_shard_that_does_not_come_up_is_named_with_its_node(
    here: str, code: Code, seconds: float, status: str, reason: str
) -> None:
    with pytest.raises(ShardError) as raised:
        asyncio.run(load_code(start_shard(here, node="n1"), code, seconds=seconds))
    assert raised.value.status == status
    assert str(raised.value) == f"a shard of the parameter server on n1{reason}"


def test_a_shard_whose_node_is_gone_is_lost_with_it(here: str) -> None:
    with pytest.raises(ShardError) as raised:
        asyncio.run(load_code(start_shard("a" * len(here), node="n2"), NO_MODULE, seconds=60))
    assert (raised.value.status, str(raised.value)) == (
        "node_lost",
        "node n2 is gone, with a shard on it",
    )


def test_a_shard_on_a_gpu_sees_the_gpu_of_its_rank_alone(here: str) -> None:
    shard = start_shard(here, node="n1", device_uuid="7")
    with pytest.raises(ShardError, match="OSError: GPU-7"):
        asyncio.run(load_code(shard, NAMES_GPUS, seconds=60))


def test_shards_with_a_backup_worker_drop_the_same_gradients(here: str) -> None:
    of = Point(
        sync="parameter_server", workers=3, staleness=0, drop_slowest=1, shards=2, clip_norm=1.0
    )
    shards = [start_shard(here, node="n1").actor for _ in range(of.servers)]
    steps = 20

    def loss(model: nn.Module, batch: int) -> torch.Tensor:
        found: torch.Tensor = model(torch.full((1, 3), float(batch))).square().sum()
        return found

    def prepared(rank: int) -> ParameterServer:
        job = Job(point=of, rank=rank, device=torch.device("cpu"), loss=loss, servers=shards)
        mode = ParameterServer(job)
        mode.prepare(nn.Linear(3, 2), functools.partial(make_optimizer, point=of))
        return mode

    def trained(mode: ParameterServer) -> int:
        clock = CpuClock()
        clock.start()
        for step in range(steps):
            mode.step(iter([step]), clock)
            assert len({*mode._versions}) == 1, "parameters of one update on all shards"
        # Nobody waits for those that are behind.
        mode.pause()
        mode.drain()
        counted = mode.counters()
        # Each gradient is used or dropped.
        assert len(counted["dropped"]) == steps
        assert len(counted["staleness"]) + sum(counted["dropped"]) == steps
        return sum(counted["dropped"])

    with alone(), ThreadPoolExecutor(of.workers) as pool:
        dropped = sum(pool.map(trained, [prepared(rank) for rank in range(of.workers)]))
        versions = {ray.get(shard.pull.remote())[1] for shard in shards}
    (updates,) = versions
    assert dropped > 0
    # Of two gradients each, of one where others had ended.
    assert updates <= of.workers * steps - dropped <= 2 * updates


# Replicas

STEPS, KILL_AT = 40, 15
ELEMENTS = 2**17
"""Of a model whose parameters a tail stores in Ray's object store: 1 MiB."""


class Scaled(nn.Module):
    """A model in one parameter, of which a worker's loss is a quadratic."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.linspace(-1, 1, ELEMENTS, dtype=torch.float64))


class Recorded(torch.optim.SGD):
    """SGD with momentum that keeps one element of each gradient."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1, momentum=0.9)
        self.seen: list[float] = []

    def step(self, closure: Any = None) -> None:
        (parameter,) = self.param_groups[0]["params"]
        self.seen.append(float(parameter.grad[-1]))
        super().step(closure)


def loss(model: nn.Module, batch: tuple[int, int]) -> torch.Tensor:
    rank, step = batch
    target = np.random.default_rng((rank, step)).normal()
    found: torch.Tensor = (model.weights - target).square().sum() / 2
    return found


def of_process(actor: Any, question: Any) -> Any:
    return ray.get(actor.__ray_call__.remote(question))


def train(of: Point, replicas: list[Any], *, killed: int | None = None) -> list[ParameterServer]:
    """Train by all workers, and kill a replica in the midst of it."""
    pid = None if killed is None else of_process(replicas[killed], lambda _: os.getpid())

    def prepared(rank: int) -> ParameterServer:
        job = Job(point=of, rank=rank, device=torch.device("cpu"), loss=loss, servers=replicas)
        mode = ParameterServer(job)
        mode.prepare(Scaled(), Recorded)
        return mode

    def work(rank: int) -> None:
        clock = CpuClock()
        clock.start()
        for step in range(STEPS):
            if (rank, step) == (0, KILL_AT) and pid is not None:
                os.kill(pid, signal.SIGKILL)
            modes[rank].step(iter([(rank, step)]), clock)
        modes[rank].drain()

    with alone(), ThreadPoolExecutor(of.workers) as pool:
        modes = [prepared(rank) for rank in range(of.workers)]
        list(pool.map(work, range(of.workers)))
    return modes


def state(shard: Any) -> tuple[list[float], dict[int, int], bool, NDArray[np.float64]]:
    """Gradients, number of each worker's last push, whether it was pulled from, and values."""
    numbers = {rank: number for rank, (number, _) in shard._last_pushes.items()}
    return shard._optimizer.seen, numbers, shard._kept[0] > 0, shard._values.numpy().copy()


@pytest.fixture(scope="module")
def replicas(here: str) -> Callable[[int], list[Any]]:
    """Some replicas that live, of which a test may kill some."""
    living: list[Any] = []

    def chain(length: int) -> list[Any]:
        living[:] = [actor for actor in living if lives(actor)]
        lacking = length - len(living)
        living.extend(start_shard(here, node="n1").actor for _ in range(lacking))
        return living[:length]

    return chain


def lives(actor: Any) -> bool:
    try:
        return bool(of_process(actor, lambda _: True))
    except ray.exceptions.ActorDiedError:
        return False


@pytest.mark.parametrize("killed", [0, 1, 2], ids=["head", "middle", "tail"])
def test_a_killed_replica_costs_no_update_and_none_is_made_twice(
    replicas: Callable[[int], list[Any]], killed: int
) -> None:
    of = Point(sync="parameter_server", workers=2, replicas=3)
    actors = replicas(of.replicas)
    modes = train(of, actors, killed=killed)
    for mode in modes:
        counted = mode.counters()
        assert counted["dead_replicas"] == [f"shard 0, replica {killed}"]
        # Neither copies of an update nor pushes that came again.
        assert counted["bytes_sent"] == STEPS * ELEMENTS * 8
        assert (counted["messages_sent"], len(counted["staleness"])) == (STEPS, STEPS)
    states = [of_process(one, state) for place, one in enumerate(actors) if place != killed]
    (seen, pushes, has_replied, values), others = states
    others_seen, others_pushes, others_replied, others_values = others
    assert np.array_equal(seen, others_seen)
    assert np.array_equal(values, others_values)
    assert (has_replied, others_replied) == (False, True), "the tail alone is pulled from"
    assert pushes == others_pushes == dict.fromkeys(range(of.workers), STEPS)
    # All have another value.
    assert len(seen) == len(set(seen)) == of.workers * STEPS
    x, m = 1.0, 0.0
    for g in seen:
        m = 0.9 * m + g
        x -= 0.1 * m
    assert abs(values[-1] - x) <= 1e-12 * abs(x - 1)


def test_replicas_are_spread_over_the_nodes() -> None:
    def on(nodes: str) -> dict[int, RankFacts]:
        return {rank: facts(node=node, node_id=node) for rank, node in enumerate(nodes)}

    of = Point(sync="parameter_server", workers=4, shards=2, replicas=3)
    assert ranks_of_shards(on("aabb"), of) == [0, 2, 1, 1, 3, 0]
    assert ranks_of_shards(on("abca"), of) == [0, 1, 2, 1, 2, 3]
    assert ranks_of_shards(on("aaaa"), of) == [0, 2, 3, 1, 0, 2]
    assert ranks_of_shards(on("aabb"), replace(of, replicas=1)) == [0, 1]
