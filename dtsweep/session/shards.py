"""Shards of the parameter server, each on the node of a rank: started, kept, ended.

A failed shard is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from numpy.typing import NDArray

from dtsweep.errors import error_line
from dtsweep.metrics.rank_result import RankFacts
from dtsweep.session.deadlines import IMPORT_S
from dtsweep.session.nodes import answers, pinned_to
from dtsweep.session.session_settings import Code
from dtsweep.sweep.point import Point

_LARGE = 2**20
"""Bytes from which on another call for a reference is worth a copy."""


@dataclass(frozen=True, kw_only=True)
class _PlacedShard:
    """A shard's actor, and where it lives."""

    actor: Any
    node_id: str
    node: str
    """Its name."""

    device_uuid: str | None
    """GPU that it sees; None for a shard on the CPU."""


class ShardError(Exception):
    """A shard did not come up; `status` says in which way."""

    def __init__(self, status: str, message: str) -> None:
        """Keep the status of the trial that wanted it."""
        super().__init__(message)
        self.status = status


class ShardPool:
    """The shards that a slot keeps from trial to trial."""

    def __init__(self, code: Code) -> None:
        """Start none yet; `code` is what each of them loads."""
        self._code = code
        self._shards: list[_PlacedShard] = []

    async def on(
        self, neighbours: Sequence[RankFacts], *, device: str
    ) -> tuple[Sequence[Any], bool]:
        """Actors of shards, one on the node of each of these ranks; whether some were started.

        Args:
            neighbours: the ranks.
            device: `gpu` puts each on its rank's GPU, `cpu` on the CPU.

        Raises:
            ShardError: one did not come up.
        """
        ready = list(self._shards)
        chosen = list[_PlacedShard]()
        new = list[_PlacedShard]()
        for facts in neighbours:
            device_uuid = facts.device_uuid if device == "gpu" else None
            place = (facts.node_id, device_uuid)
            shard = next((one for one in ready if (one.node_id, one.device_uuid) == place), None)
            if shard is None:
                shard = start_shard(str(facts.node_id), node=facts.node, device_uuid=device_uuid)
                self._shards.append(shard)
                new.append(shard)
            else:
                ready.remove(shard)
            chosen.append(shard)
        await asyncio.gather(*(load_code(shard, self._code) for shard in new))
        return [shard.actor for shard in chosen], bool(new)

    def drop(self) -> None:
        """Kill all of them."""
        for shard in self._shards:
            ray.kill(shard.actor)
        self._shards = []


def ranks_of_shards(point: Point) -> list[int]:
    """Ranks next to which a point's shards run: shard i at rank i mod workers."""
    return [shard % point.workers for shard in range(point.servers)]


def start_shard(node_id: str, *, node: str, device_uuid: str | None = None) -> _PlacedShard:
    """Start a shard on this node, of whose CPUs and GPUs Ray counts none to it."""
    from dtsweep.servers.shard import Shard

    options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": pinned_to(node_id)}
    if device_uuid is not None:
        # A rank has that GPU already. Ray leaves the variable as it is in actors without GPUs.
        options["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": f"GPU-{device_uuid}"}}
    actor = ray.remote(Shard).options(**options).remote(_stored)
    return _PlacedShard(actor=actor, node_id=node_id, node=node, device_uuid=device_uuid)


def _stored(values: NDArray[Any]) -> Any:
    """Keep values that a shard goes on to change: large ones in Ray's object store.

    Ray copies what an actor returns when the actor already does the next call.
    """
    if values.nbytes < _LARGE:
        return values.copy()
    return ray.put(values)


async def load_code(shard: _PlacedShard, code: Code, *, seconds: float = IMPORT_S) -> None:
    """Have a shard import what the workload's optimizer needs, and wait for it.

    Raises:
        ShardError: it can't, or its process or node has ended.
    """
    where = f"a shard of the parameter server on {shard.node}"
    try:
        await asyncio.wait_for(shard.actor.load.remote(code), seconds)
    except TimeoutError as error:
        message = f"{where} was not ready after {seconds:g} s: does an import wait for something?"
        raise ShardError("hang", message) from error
    except ray.exceptions.RayTaskError as error:
        raise ShardError(
            "user_error", f"{where} can't load the workload: {error_line(error.cause or error)}"
        ) from error
    except ray.exceptions.RayError as error:
        if not await answers(shard.node_id):
            raise ShardError(
                "node_lost", f"node {shard.node} is gone, with a shard on it"
            ) from error
        raise ShardError(
            "collateral", f"{where} ended while it started ({type(error).__name__})"
        ) from error
