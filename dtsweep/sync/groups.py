"""Process groups of a part of the ranks, and what ranks have begun in them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from dtsweep.compression.exchange import Wait
from dtsweep.sync.meshes import all_groups, forget_meshes, mesh_of
from dtsweep.sync.mode import Job

NODES, IN_NODE = "nodes", "in_node"
"""Dimensions of the mesh of nodes."""

_uncounted: Counter[str] = Counter()
"""Growth of a group's count of collectives by messages between two ranks, by the group's name."""

_messages: Counter[str] = Counter()
"""Calls of `send_and_receive` in this world, by the group's name."""


def mesh_of_all(job: Job) -> DeviceMesh:
    """All ranks in one row."""
    return mesh_of(job.device, (job.point.workers,), ("workers",))


def mesh_of_nodes(job: Job) -> DeviceMesh:
    """The ranks as (nodes, workers of a node), in the order of ranks.

    Raises:
        ValueError: nodes have different numbers of workers.
    """
    workers = job.point.workers
    size = job.point.node_size or _workers_of_a_node(workers)
    return mesh_of(job.device, (workers // size, size), (NODES, IN_NODE))


def _workers_of_a_node(workers: int) -> int:
    """Number of workers on each node, from the launcher's variables, else all workers."""
    local_workers = os.environ.get("LOCAL_WORLD_SIZE", str(workers))
    places: list[Any] = [None] * workers
    distributed.all_gather_object(
        places, (os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0")), int(local_workers))
    )
    sizes: set[int] = {size for _, size in places}
    if len(sizes) > 1 or any(
        len({node for node, _ in row}) > 1 for row in _rows(places, min(sizes))
    ):
        counts = [size for _, size in dict(places).items()]
        raise ValueError(f"nodes have {counts} workers; set node_size, or give each node as many")
    return sizes.pop()


def _rows(places: list[Any], size: int) -> Iterator[list[Any]]:
    return (places[start : start + size] for start in range(0, len(places), size))


def forget_groups() -> None:
    """Release all meshes and reset the count of collectives, before their world ends."""
    forget_meshes()
    _uncounted.clear()
    _messages.clear()


def position() -> int:
    """Number of collectives this rank has begun in all groups; equal on ranks that are in step."""
    return sum(positions().values())


def positions() -> dict[str, int]:
    """Number of collectives this rank has begun in each of its groups, by the group's name.

    All ranks of a group have the same name for it. Messages between two ranks are left out: a rank
    at the end of a tree or of a pipeline has fewer of them.
    """
    begun = {str(group.group_name): _begun(group) for group in all_groups()}
    for name, growth in _uncounted.items():
        begun[name] -= growth
    return begun


@contextlib.contextmanager
def uncounted(group: distributed.ProcessGroup) -> Iterator[None]:
    """Leave what a group does in this context out of `positions`: messages between two ranks."""
    before = _begun(group)
    try:
        yield
    finally:
        _uncounted[str(group.group_name)] += _begun(group) - before


def messages() -> int:
    """Number of messages that this rank has sent, received, or both at once, in this world."""
    return _messages.total()


def send_and_receive(operations: Sequence[distributed.P2POp]) -> None:
    """Do these sends and receives of the world's group at once, and wait for them.

    Those of empty tensors are left out.
    """
    filled = [operation for operation in operations if operation.tensor.numel()]
    if not filled:
        return
    world = distributed_c10d._get_default_group()
    with uncounted(world):
        works = distributed.batch_isend_irecv(filled)
    _messages[str(world.group_name)] += 1
    for work in works:
        work.wait()


def _begun(group: distributed.ProcessGroup) -> int:
    count: int = group._get_sequence_number_for_group()  # type: ignore[attr-defined]  # missing in torch's stub
    return count


class GroupCollectives:
    """Collectives of a process group that carry compressed tensors (`compression.exchange`)."""

    def __init__(self, group: distributed.ProcessGroup) -> None:
        """Take the group."""
        self._group = group
        self.ranks = group.size()
        self.rank = group.rank()

    def all_reduce(self, values: Tensor) -> Wait:
        """Add values up, in place."""
        return _waiting(distributed.all_reduce(values, group=self._group, async_op=True), values)

    def all_gather(self, payload: Tensor) -> Wait:
        """Bring everybody's payload to everybody."""
        rows = payload.new_empty(self.ranks * len(payload))
        return _waiting(
            all_gather(rows, payload, self._group, async_op=True), rows.view(self.ranks, -1)
        )

    def all_to_all(self, payloads: Tensor) -> Wait:
        """Bring row i of everybody's payloads to rank i."""
        received = torch.empty_like(payloads)
        return _waiting(
            distributed.all_to_all_single(received, payloads, group=self._group, async_op=True),
            received,
        )


def _waiting(work: Any, result: Tensor) -> Wait:
    def wait() -> Tensor:
        work.wait()
        return result

    return wait


def all_gather(
    output: Any, shard: Any, group: distributed.ProcessGroup, *, async_op: bool = False
) -> Any:
    """Gather equal shards in the order of ranks; torch 2.13 gave it another name."""
    gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
    return gather(output, shard, group=group, async_op=async_op)


def reduce_scatter(shard: Any, values: Any, group: distributed.ProcessGroup) -> None:
    """Sum, each rank keeps an equal shard; torch 2.13 gave it another name."""
    scatter = (
        getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    )
    scatter(shard, values, group=group)
