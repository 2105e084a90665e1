"""Shards of the parameter server that don't start, on a real Ray: each is named with its error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import ray

from dtsweep.driver.connect import connected
from dtsweep.session.session_settings import Code
from dtsweep.session.shards import ShardError, load_code, start_shard

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
    shard = start_shard(here, node="n1", device_uuid="GPU-7")
    with pytest.raises(ShardError, match="OSError: GPU-7"):
        asyncio.run(load_code(shard, NAMES_GPUS, seconds=60))
