"""Nodes for a session that runs next to others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dtsweep.sweep.point import World

_Rooms = Mapping[str, int]
"""Number of workers that each node can hold, by node."""

Places = Mapping[str, int]
"""Number of workers of a session on each of its nodes."""


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes of a cluster, as sessions take them."""

    rooms: _Rooms
    """Of all nodes, used ones too."""

    shares_nodes: bool = False
    """True if several sessions may use a node; otherwise a session takes whole nodes."""

    def holds(self, world: World) -> bool:
        """True if the nodes could hold a world if nothing else ran."""
        return self.places_for(world, taken=()) is not None

    def places_for(self, world: World, *, taken: Iterable[Places]) -> Places | None:
        """Choose nodes for a session of a world; None if it does not fit now."""
        free = self._free(taken)
        workers = world.workers
        if workers > sum(free.values()):
            return None
        if world.placement == "strict_pack":
            return self._on_one_node(workers, free)
        if world.placement == "strict_spread":
            if len(free) < workers:
                return None
            # The nodes with least room; where nodes are shared, those with most.
            nodes = list(free)
            return dict.fromkeys(nodes[-workers:] if self.shares_nodes else nodes[:workers], 1)
        if world.placement == "spread":
            return self._spread(workers, free)
        return self._packed(workers, free)

    def _free(self, taken: Iterable[Places]) -> dict[str, int]:
        """Rooms that are left, the smallest first."""
        free = dict(self.rooms)
        for places in taken:
            # A node may have gone meanwhile.
            for node in places.keys() & free.keys():
                free[node] = max(0, free[node] - places[node]) if self.shares_nodes else 0
        by_room = sorted((room, node) for node, room in free.items() if room > 0)
        return {node: room for room, node in by_room}

    def _on_one_node(self, workers: int, free: _Rooms) -> Places | None:
        """The node with least room that is enough; where nodes are shared, the one with most."""
        enough = [node for node, room in free.items() if room >= workers]
        if not enough:
            return None
        return {enough[-1 if self.shares_nodes else 0]: workers}

    def _packed(self, workers: int, free: _Rooms) -> Places:
        """As few nodes as possible: the largest ones, and the smallest that can hold the rest."""
        places: dict[str, int] = {}
        rest = dict(free)
        while workers:
            last = self._on_one_node(workers, rest)
            if last is not None:
                return {**places, **last}
            node, room = rest.popitem()
            places[node] = room
            workers -= room
        return places

    def _spread(self, workers: int, free: _Rooms) -> Places | None:
        """As many nodes as the cluster has, at most one for each worker."""
        count = min(workers, sum(room > 0 for room in self.rooms.values()))
        room = dict(list(free.items())[-count:])
        if len(room) < count or sum(room.values()) < workers:
            return None
        places = dict.fromkeys(room, 0)
        while workers:
            for node in places:
                if workers and places[node] < room[node]:
                    places[node] += 1
                    workers -= 1
        return places
