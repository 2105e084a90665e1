"""Nodes of a Ray, the nodes an autoscaler can add, and the worlds that fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtsweep.cluster.autoscaler import Autoscaler, NodeType, find_autoscaler
from dtsweep.session.node_choice import (
    Node,
    can_hold,
    nodes_now,
    room_for,
    rooms_in_words,
    rooms_of,
)
from dtsweep.sweep.point import World
from dtsweep.text import count_of


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The Ray that is used, as it was when the run began."""

    name: str
    """Name shown to the user."""

    is_private: bool
    """True if it was started for this run and ends with it."""

    nodes: Sequence[Node]
    autoscaler: Autoscaler | None = None
    """Autoscaler; None if the nodes are fixed."""

    folder: Path | None = None
    """Temporary folder of a private Ray; None of a cluster that was joined."""

    notes: Sequence[str] = ()
    """Lines for the user on how it was started or joined."""

    def has_gpus(self) -> bool | None:
        """True if a node, or one that can be added, has a GPU; None where that is unknown."""
        if any(kind.get("GPU", 0) for kind in self._kinds()):
            return True
        if self._adds_unknown_types:
            return None
        return False

    def cpus_per_worker(self, gpus: int) -> int:
        """CPUs for a worker of so many GPUs: an equal share of each node that can hold one.

        At least 1. It is 1 for workers without GPUs, and where nodes of unknown types can be added.
        """
        if not gpus or self._adds_unknown_types:
            return 1
        shares = [
            int(kind.get("CPU", 0) * gpus // kind["GPU"])
            for kind in self._kinds()
            if kind.get("GPU", 0) >= gpus
        ]
        return max(1, min(shares, default=1))

    @property
    def _adds_unknown_types(self) -> bool:
        return self.autoscaler is not None and self.autoscaler.types is None

    def _kinds(self) -> list[Mapping[str, float]]:
        """Resources of each node, and of each type of nodes that is known and can be added."""
        types = (self.autoscaler and self.autoscaler.types) or ()
        return [*(node.resources for node in self.nodes), *(kind.resources for kind in types)]

    def described(self) -> str:
        """One line for the user: name, nodes, devices."""
        total = {
            kind: sum(node.resources.get(kind, 0) for node in self.nodes) for kind in ("CPU", "GPU")
        }
        size = ", ".join(count_of(int(count), kind) for kind, count in total.items() if count)
        nodes = count_of(len(self.nodes), "node")
        return f"{self.name}: {nodes}, {size or 'no CPU'}{self._growth()}"

    def misfit(
        self, workers: int, placement: str, *, per_worker: Mapping[str, float]
    ) -> str | None:
        """Return why a world can't be placed, or None.

        With nodes of unknown types only waiting shows it.
        """
        rooms = self.rooms(per_worker)
        if rooms is None:
            return None
        if can_hold(rooms, workers=workers, placement=placement):
            return None
        has = rooms_in_words(rooms)
        if self.autoscaler is not None:
            has = f"at most {has}"
        rules = {"strict_pack": " on one node", "strict_spread": " on a node each"}
        rule = rules.get(placement, "")
        wanted = " + ".join(f"{count:g} {kind}" for kind, count in per_worker.items() if count)
        return f"{count_of(workers, 'worker')} of {wanted}{rule} don't fit: {has}"

    def least_nodes(self, world: World, *, per_worker: Mapping[str, float]) -> int:
        """Number of nodes a world needs at least."""
        if world.placement == "strict_pack":
            return 1
        # Of unknown types: as large as the largest that is there.
        room = 1
        if world.placement != "strict_spread":
            rooms = self.rooms(per_worker)
            room = max(rooms_of(self.nodes, per_worker) if rooms is None else rooms, default=1)
        return math.ceil(world.workers / max(1, room))

    def rooms(self, per_worker: Mapping[str, float]) -> list[int] | None:
        """Number of workers that each node can hold, with nodes that may be added.

        None where nodes of unknown types may be added.
        """
        if self._adds_unknown_types:
            return None
        autoscaler = self.autoscaler or Autoscaler(types=(), max_nodes=0)
        types = autoscaler.types or ()
        # A node that could be added again counts among those that may be.
        staying = [node for node in self.nodes if not any(_is_of(node, kind) for kind in types)]
        added = list[int]()
        for kind in types:
            added += [room_for(kind.resources, per_worker)] * kind.max_nodes
        most = sorted(added, reverse=True)[: autoscaler.max_nodes]
        return rooms_of(staying, per_worker) + most

    def _growth(self) -> str:
        if self.autoscaler is None:
            return ""
        if self.autoscaler.types is None:
            return ", and an autoscaler that can add nodes of unknown types"
        names = " or ".join(kind.name for kind in self.autoscaler.types) or "none"
        return (
            ", and an autoscaler that can have up to "
            f"{count_of(self.autoscaler.max_nodes or 0, 'node')} of {names}"
        )


def look_at(name: str, *, is_private: bool) -> Cluster:
    """The Ray to which this process is connected.

    Raises:
        SweepError: its head does not answer.
    """
    autoscaler = None
    if not is_private:
        autoscaler = find_autoscaler()
    return Cluster(name=name, is_private=is_private, nodes=nodes_now(), autoscaler=autoscaler)


def _is_of(node: Node, kind: NodeType) -> bool:
    """True if a node is, by what it has, one of a type; the head is of none."""
    is_head = "node:__internal_head__" in node.resources
    return not is_head and all(
        node.resources.get(name, 0) == kind.resources.get(name, 0) for name in ("CPU", "GPU")
    )
