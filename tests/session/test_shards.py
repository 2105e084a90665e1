"""Shards of the parameter server on a real Ray: failed starts, backup workers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
import torch
from torch import nn

from dtsweep.cluster.connect import connected
from dtsweep.measure.clock import CpuClock
from dtsweep.servers.parameter_server import ParameterServer
from dtsweep.session.session_settings import Code
from dtsweep.session.shards import ShardError, load_code, start_shard
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import make_optimizer
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
