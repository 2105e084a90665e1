"""Nodes that a sweep can use at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from dtsweep.sweep.axes import Candidate
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import Sweep


def nodes_json(sweep: Sweep, candidates: Iterable[Candidate]) -> dict[str, Any]:
    """Give what a sweep needs of nodes, as JSON values.

    Returns:
        CPUs and GPUs of a worker; GPUs are None where the cluster decides. The nodes for each size
        of a node: 1, 2, 4, … workers, up to the largest world on one node.
    """
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    worlds = {(point.workers, point.placement): point.world for point in points}
    largest = max((world.workers for world in worlds.values()), default=0)
    sizes = []
    if worlds:
        sizes = [2**power for power in range((largest - 1).bit_length() + 1)]
    return {
        "nodes": {
            "cpus_per_worker": sweep.resources.cpus_per_worker or 1,
            "gpus_per_worker": sweep.resources.gpus_per_worker,
            "by_workers_per_node": [
                {"workers_per_node": size, "at_once": _at_once(sweep, worlds.values(), size)}
                for size in sizes
            ],
        }
    }


def _at_once(sweep: Sweep, worlds: Collection[World], workers_per_node: int) -> int:
    """Nodes of the `concurrent` largest worlds; 0 where none fits.

    A world can be there once for each launch of its points.
    """
    launches = sweep.measure.repeats or 1
    if sweep.question is not None:
        launches = sweep.question.max_launches
    counts = []
    for world in worlds:
        count = _nodes_needed(world, workers_per_node)
        if world.placement == "spread":
            # It uses a node for each worker where there are as many.
            count = world.workers
        counts += [count or 0] * launches
    return sum(sorted(counts, reverse=True)[: sweep.resources.concurrent])


def _nodes_needed(world: World, room: int) -> int | None:
    """Number of nodes of one type that a world needs; None where they can't hold it.

    >>> world = World(workers=16, placement="pack", environment=())
    >>> _nodes_needed(world, 8), _nodes_needed(world, 5), _nodes_needed(world, 0)
    (2, 4, None)
    """
    if room < 1 or (world.placement == "strict_pack" and room < world.workers):
        return None
    if world.placement == "strict_spread":
        return world.workers
    return math.ceil(world.workers / room)
