"""Nodes that a sweep can use at once, by its worlds and their placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dtsweep.plan.cost import nodes_needed
from dtsweep.sweep.axes import Candidate
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import Resources, Sweep
from dtsweep.text import count_of


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Nodes that a sweep can use, if each holds so many workers."""

    workers_per_node: int
    at_once: int
    """Nodes that can be in use at the same time; 0 where no world fits."""

    of_largest: int
    """Nodes of the world that needs most."""

    misfits: tuple[str, ...] = ()
    """Worlds that fit on no number of such nodes."""


def nodes_json(sweep: Sweep, candidates: Iterable[Candidate]) -> dict[str, Any]:
    """Give what a sweep needs of nodes, as JSON values.

    Args:
        sweep: its resources and launches.
        candidates: its points; skipped ones need no nodes.

    Returns:
        CPUs and GPUs of a worker; GPUs are None where the cluster decides. The nodes for each size
        of a node: 1, 2, 4, … workers, up to the largest world on one node.
    """
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    worlds = {(point.workers, point.placement): point.world for point in points}
    sizes: list[int] = []
    largest = max((world.workers for world in worlds.values()), default=0)
    workers_per_node = 1
    while worlds and (not sizes or sizes[-1] < largest):
        sizes.append(workers_per_node)
        workers_per_node *= 2
    nodes = {
        "cpus_per_worker": sweep.resources.cpus_per_worker or 1,
        "gpus_per_worker": sweep.resources.gpus_per_worker,
        "by_workers_per_node": [asdict(demand_of(sweep, worlds.values(), room)) for room in sizes],
    }
    return {"nodes": nodes}


def demand_of(sweep: Sweep, worlds: Iterable[World], workers_per_node: int) -> Demand:
    """Nodes that a sweep can use at once.

    As many as its `concurrent` largest worlds need; a world can be there once for each launch of
    its points.

    Args:
        sweep: its resources and launches.
        worlds: that may be measured.
        workers_per_node: workers that a node holds.
    """
    needs = {world: nodes_of(world, room=workers_per_node) for world in worlds}
    fitting = sorted((count for count in needs.values() if count), reverse=True)
    return Demand(
        workers_per_node=workers_per_node,
        at_once=_at_once(sweep, needs, workers_per_node=workers_per_node),
        of_largest=max(fitting, default=0),
        misfits=tuple(
            f"{count_of(world.workers, 'worker')} with placement {world.placement}"
            for world, count in needs.items()
            if count is None
        ),
    )


def nodes_of(world: World, *, room: int) -> int | None:
    """Nodes of a world; None if it must stay on one node and does not fit.

    Args:
        world: its workers and placement.
        room: workers that a node holds.
    """
    if world.placement == "spread":
        # It uses a node for each worker where there are as many.
        return world.workers
    return nodes_needed(world, room)


def _at_once(sweep: Sweep, needs: Mapping[World, int | None], *, workers_per_node: int) -> int:
    resources = sweep.resources
    fitting = sorted((count for count in needs.values() if count), reverse=True)
    if resources.share_nodes:
        sizes = [world.workers for world, count in needs.items() if count == 1]
        shared = _shared(resources, room=workers_per_node, largest=max(sizes, default=1))
        return max([shared, *fitting])
    sessions = [count for count in fitting for _ in range(_launches(sweep))]
    return sum(sessions[: resources.concurrent])


def _launches(sweep: Sweep) -> int:
    """Launches of a point, at most: each has sessions of its own."""
    if sweep.question is not None:
        return sweep.question.max_launches
    return sweep.measure.repeats or 1


def _shared(resources: Resources, *, room: int, largest: int) -> int:
    """Nodes whose equal parts hold the largest world of one node, a part for each slot."""
    slots_per_node = max(1, room // largest)
    return -(-resources.concurrent // slots_per_node)
