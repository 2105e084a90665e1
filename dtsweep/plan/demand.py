"""Nodes that a sweep can use at once, by its worlds and their placement."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dtsweep.plan.cost import nodes_needed
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
    nodes = {
        "cpus_per_worker": sweep.resources.cpus_per_worker or 1,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        "by_workers_per_node": [
            {"workers_per_node": size, "at_once": _at_once(sweep, worlds.values(), size)}
            for size in sizes
        ],
    }
    return {"nodes": nodes}


def _at_once(sweep: Sweep, worlds: Collection[World], workers_per_node: int) -> int:
    """Nodes of the `concurrent` largest worlds; 0 where none fits.

    A world can be there once for each launch of its points.
    """
    launches = sweep.measure.repeats or 1
    if sweep.question is not None:
        launches = sweep.question.max_launches
    counts = []
    for world in worlds:
        count = nodes_needed(world, workers_per_node)
        if world.placement == "spread":
            # It uses a node for each worker where there are as many.
            count = world.workers
        counts += [count or 0] * launches
    return sum(sorted(counts, reverse=True)[: sweep.resources.concurrent])
