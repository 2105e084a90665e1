"""Shards of the parameter server are started, each on the node of a rank; one that does not come up is named."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import ray

from dtsweep.errors import error_line
from dtsweep.session.deadlines import IMPORT_S
from dtsweep.session.nodes import answers, pinned_to
from dtsweep.session.settings import Code


@dataclass(frozen=True, kw_only=True)
class PlacedShard:
    """A shard's actor, and where it lives."""

    actor: Any
    node_id: str
    node: str
    """Its name."""


class ShardError(Exception):
    """A shard did not come up; `status` says in which way."""

    def __init__(self, status: str, message: str) -> None:
        """Keep the status of the trial that wanted it."""
        super().__init__(message)
        self.status = status


def start_shard(node_id: str, *, node: str) -> PlacedShard:
    """Start a shard without CPUs on this node."""
    from dtsweep.sync.parameter_server import Shard

    options = {"num_cpus": 0, "scheduling_strategy": pinned_to(node_id)}
    return PlacedShard(actor=ray.remote(Shard).options(**options).remote(), node_id=node_id, node=node)


async def load_code(shard: PlacedShard, code: Code, *, seconds: float = IMPORT_S) -> None:
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
            raise ShardError("node_lost", f"node {shard.node} is gone, with a shard on it") from error
        raise ShardError("collateral", f"{where} ended while it started ({type(error).__name__})") from error
