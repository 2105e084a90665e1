"""Nodes for sessions that run at the same time: which session begins next, and where. Pure.

Sessions begin in their order. The first one that does not fit gets a reservation: the earliest time
at which its nodes should be free. Until then a later session may begin if it should end by that
time, or if it uses other nodes. Batch schedulers call this EASY backfill (Lifka, 1995).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Rooms = Mapping[str, int]
"""Number of workers that each node can hold, by node."""

Places = Mapping[str, int]
"""Number of workers of a session on each of its nodes."""


@dataclass(frozen=True, kw_only=True)
class WaitingSession:
    """A session that waits for nodes."""

    workers: int
    placement: str = "pack"
    expected_s: float
    """Expected time from its start to its end, in seconds."""


@dataclass(frozen=True, kw_only=True)
class RunningSession:
    """A session that has its nodes."""

    places: Places
    ends_at: float
    """Expected end, by the clock of `NodePool.next_to_begin`. It may have passed.

    Such a session is expected to end now: nothing may begin in the time that it takes longer, or a
    large session could wait for ever.
    """


@dataclass(frozen=True, kw_only=True)
class Begin:
    """A session that may begin now."""

    index: int
    """Its place among those that wait."""

    places: Places


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Nodes for the first session that does not fit now."""

    at: float
    """Time at which they should be free."""

    places: Places


class FreeRooms:
    """Rooms that are free, with those nodes first that a session should take."""

    def __init__(
        self, rooms: Rooms, *, nodes: int, shares_nodes: bool, spared: Collection[str] = ()
    ) -> None:
        """Sort the rooms.

        Args:
            rooms: free ones by node.
            nodes: number of nodes of the cluster that can hold a worker.
            shares_nodes: whether sessions share nodes.
            spared: nodes that are taken last among those with as much room.
        """
        by_room = sorted(
            (room, node not in spared, node) for node, room in rooms.items() if room > 0
        )
        self._nodes = [node for _, _, node in by_room]
        self._rooms = [room for room, _, _ in by_room]
        self._total = sum(self._rooms)
        self._nodes_of_cluster = nodes
        self._shares_nodes = shares_nodes

    @property
    def is_empty(self) -> bool:
        """True if no worker has room."""
        return not self._nodes

    def place(self, workers: int, placement: str) -> Places | None:
        """Choose nodes for a session; None if it does not fit.

        >>> free = FreeRooms({"a": 2, "b": 4}, nodes=2, shares_nodes=False)
        >>> free.place(2, "pack"), free.place(5, "pack"), free.place(5, "strict_pack")
        ({'a': 2}, {'b': 4, 'a': 1}, None)
        """
        if workers > self._total:
            return None
        if placement == "strict_spread":
            return self._one_on_each(workers)
        if placement == "spread":
            return self._spread(workers)
        if placement == "strict_pack":
            return self._on_one_node(workers, last=len(self._nodes))
        return self._packed(workers)

    def _on_one_node(self, workers: int, *, last: int) -> Places | None:
        """The node with least room that is enough; where nodes are shared, the one with most.

        `last` is the number of nodes that may be used.
        """
        first = bisect_left(self._rooms, workers, hi=last)
        if first == last:
            return None
        enough = last
        if not self._shares_nodes:
            enough = bisect_right(self._rooms, self._rooms[first], hi=last)
        return {self._nodes[enough - 1]: workers}

    def _packed(self, workers: int) -> Places:
        """As few nodes as possible: the largest ones, and the smallest that can hold the rest."""
        places: dict[str, int] = {}
        rest = workers
        for last in range(len(self._nodes), 0, -1):
            place = self._on_one_node(rest, last=last)
            if place is not None:
                return {**places, **place}
            places[self._nodes[last - 1]] = self._rooms[last - 1]
            rest -= self._rooms[last - 1]
        raise AssertionError("fewer rooms than were counted")

    def _one_on_each(self, workers: int) -> Places | None:
        if len(self._nodes) < workers:
            return None
        if self._shares_nodes:
            return dict.fromkeys(self._nodes[-workers:], 1)
        return dict.fromkeys(self._nodes[:workers], 1)

    def _spread(self, workers: int) -> Places | None:
        """As many nodes as there are, at most one for each worker."""
        count = min(workers, self._nodes_of_cluster)
        room = dict(zip(self._nodes[-count:], self._rooms[-count:], strict=True))
        if len(room) < count or sum(room.values()) < workers:
            return None
        places = dict.fromkeys(room, 0)
        rest = workers
        while rest:
            for node in places:
                if rest and places[node] < room[node]:
                    places[node] += 1
                    rest -= 1
        return places


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes of a cluster, as sessions take them."""

    rooms: Rooms
    """Of all nodes, used ones too."""

    shares_nodes: bool = False
    """True if several sessions may use a node; otherwise a session takes whole nodes."""

    def holds(self, session: WaitingSession) -> bool:
        """True if the nodes could hold a session if nothing else ran."""
        return self._free(()).place(session.workers, session.placement) is not None

    def next_to_begin(
        self, waiting: Sequence[WaitingSession], running: Sequence[RunningSession], *, now: float
    ) -> Begin | None:
        """The next session that may begin now, and its nodes; None if all have to wait.

        Args:
            waiting: sessions in the order in which they should begin. One that the pool can't hold
                at all is passed over.
            running: sessions that have nodes.
            now: time in seconds, by any clock.
        """
        taken = [session.places for session in running]
        free = self._free(taken)
        if free.is_empty:
            return None
        reserved: Reservation | None = None
        others = free
        too_large: set[tuple[int, str]] = set()
        only_before: set[tuple[int, str]] = set()
        for index, session in enumerate(waiting):
            shape = (session.workers, session.placement)
            if shape in too_large:
                continue
            is_in_time = reserved is None or now + session.expected_s <= reserved.at
            if not is_in_time and shape in only_before:
                continue
            places = (free if is_in_time else others).place(*shape)
            if places is not None:
                return Begin(index=index, places=places)
            if not is_in_time:
                only_before.add(shape)
                continue
            too_large.add(shape)
            if reserved is None:
                reserved = self._reservation(session, running, now=now)
                if reserved is not None:
                    others = self._free([*taken, reserved.places])
        return None

    def _reservation(
        self, session: WaitingSession, running: Sequence[RunningSession], *, now: float
    ) -> Reservation | None:
        """The earliest time at which a session should fit; None if the pool can't hold it."""
        by_end = sorted(running, key=lambda one: one.ends_at)

        free_now = self._free_nodes(running)

        def places_after(ended: int) -> Places | None:
            # Nodes that are free now are left to sessions that are longer.
            free = self._free((one.places for one in by_end[ended:]), spared=free_now)
            return free.place(session.workers, session.placement)

        counts = range(len(by_end) + 1)
        ended = bisect_left(counts, 1, key=lambda count: int(places_after(count) is not None))
        if ended > len(by_end):
            return None
        places = places_after(ended)
        if places is None:
            return None
        return Reservation(at=max(now, by_end[ended - 1].ends_at), places=places)

    def _free_nodes(self, running: Sequence[RunningSession]) -> frozenset[str]:
        """Nodes that no session uses."""
        used = {node for session in running for node in session.places}
        return frozenset(self.rooms.keys() - used)

    def _free(self, taken: Iterable[Places], *, spared: Collection[str] = ()) -> FreeRooms:
        """Rooms that are left when these are taken; `spared` is as of `FreeRooms`."""
        free = dict(self.rooms)
        for places in taken:
            for node, workers in places.items():
                if node in free:  # it may have gone meanwhile
                    free[node] = max(0, free[node] - workers) if self.shares_nodes else 0
        nodes = sum(room > 0 for room in self.rooms.values())
        return FreeRooms(free, nodes=nodes, shares_nodes=self.shares_nodes, spared=spared)
