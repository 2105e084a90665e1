"""Nodes that a sweep can use at once, by its worlds and their placement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dtsweep.errors import SweepError
from dtsweep.plan.cost import nodes_needed
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.settings import Resources, Sweep
from dtsweep.text import count_of


@dataclass(frozen=True, kw_only=True)
class Node:
    """Resources of a node for workers."""

    cpus: int
    gpus: int

    def __str__(self) -> str:
        """Say it in words.

        >>> str(Node(cpus=8, gpus=1)), str(Node(cpus=1, gpus=0))
        ('8 CPUs and 1 GPU', '1 CPU')
        """
        words = count_of(self.cpus, "CPU")
        if self.gpus:
            words += f" and {count_of(self.gpus, 'GPU')}"
        return words

    def room(self, resources: Resources) -> int:
        """Workers that a node holds.

        >>> Node(cpus=96, gpus=8).room(Resources(gpus_per_worker=1, cpus_per_worker=16))
        6
        """
        by_cpus = self.cpus // (resources.cpus_per_worker or 1)
        if not self.gpus or resources.gpus_per_worker == 0:
            return by_cpus
        return min(by_cpus, self.gpus)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Nodes of a kind that a sweep can use."""

    at_once: int
    """Nodes that can be in use at the same time."""

    of_largest: int
    """Nodes of the world that needs most."""

    misfits: tuple[str, ...] = ()
    """A line for each world that fits on no number of such nodes."""


def demand_of(sweep: Sweep, points: Iterable[Point], node: Node) -> Demand:
    """Nodes that a sweep can use at once.

    As many as its `concurrent` largest worlds need; a world can be there once for each launch of
    its points.

    Args:
        sweep: its resources and launches.
        points: that may be measured.
        node: resources of each node.

    Raises:
        SweepError: a node does not hold a worker.
    """
    resources = sweep.resources
    room = node.room(resources)
    if not room:
        raise SweepError(
            f"a worker needs {count_of(resources.cpus_per_worker or 1, 'CPU')}, and a node has "
            f"{node}; give more --cpus-per-node"
        )
    worlds = {(point.workers, point.placement): point.world for point in points}
    needs = {shape: nodes_of(world, room=room) for shape, world in worlds.items()}
    fitting = sorted((count for count in needs.values() if count), reverse=True)
    if not fitting:
        raise SweepError(f"no world of the sweep fits on nodes of {node}; give larger nodes")
    if resources.share_nodes:
        sizes = [workers for (workers, _), count in needs.items() if count == 1]
        at_once = max(fitting[0], _shared(resources, room=room, largest=max(sizes, default=room)))
    else:
        sessions = [count for count in fitting for _ in range(_launches(sweep))]
        at_once = sum(sessions[: resources.concurrent])
    misfits = tuple(
        f"{count_of(workers, 'worker')} with placement {placement} don't fit on a node of {node}; "
        "their trials will end as infeasible"
        for (workers, placement), count in needs.items()
        if count is None
    )
    return Demand(at_once=at_once, of_largest=fitting[0], misfits=misfits)


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


def _launches(sweep: Sweep) -> int:
    """Launches of a point, at most: each has sessions of its own."""
    if sweep.question is not None:
        return sweep.question.max_launches
    return sweep.measure.repeats or 1


def _shared(resources: Resources, *, room: int, largest: int) -> int:
    """Nodes whose equal parts hold the largest world of one node, a part for each slot."""
    slots_per_node = max(1, room // largest)
    return -(-resources.concurrent // slots_per_node)
