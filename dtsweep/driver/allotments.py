"""Nodes of the sessions of a run: which waiting session begins next, and where.

One session at a time may use all nodes, and Ray chooses. Where several run at the same time, the
driver chooses: of the sessions that wait, the first one that fits onto free nodes begins. The
largest worlds come first, so the nodes that a large session leaves hold the next one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import ray

from dtsweep.plan.allotment import NodePool, Places
from dtsweep.session.node_choice import (
    STRIKES,
    FailureCounts,
    NodeNow,
    nodes_now,
    room_for,
    rooms_in_words,
)
from dtsweep.sweep.point import World

LOOK_EVERY_S = 1.0
"""Interval of looks at the nodes of a cluster."""

Failures = Mapping[str, frozenset[str]]
"""Nodes on which each trial has lost a process."""


class Allotments:
    """Nodes of a cluster, and the sessions that have them, by slot."""

    def __init__(self, per_worker: Mapping[str, float], *, shares_nodes: bool) -> None:
        """Look at nothing yet.

        Args:
            per_worker: resources of one worker.
            shares_nodes: whether sessions share nodes.
        """
        self._per_worker = per_worker
        self._shares_nodes = shares_nodes
        self._nodes: list[NodeNow] = []
        self._looked_at = -LOOK_EVERY_S
        self._left_out: set[str] = set()
        self._notes: list[str] = []
        self._places: dict[int, Places] = {}

    def next(self, waiting: Sequence[World], *, failures: Failures) -> tuple[int, Places] | None:
        """The first of these sessions that may begin, and its nodes; None if all have to wait.

        Args:
            waiting: largest worlds of the sessions, in the order in which they should begin.
            failures: of this run so far.
        """
        pool = self._pool(waiting, failures)
        too_large: set[World] = set()
        for index, world in enumerate(waiting):
            if world in too_large:
                continue
            places = pool.places_for(world, taken=self._places.values())
            if places is not None:
                return index, places
            too_large.add(world)
        return None

    def misfits(self, waiting: Sequence[World], *, failures: Failures) -> dict[int, str]:
        """Reasons for sessions that don't fit on the nodes any more, by their place."""
        pool = self._pool(waiting, failures)
        if not pool.rooms:
            # Of no nodes at all the head has not said yet which ones there are.
            return {}
        nodes = rooms_in_words([room for room in pool.rooms.values() if room])
        return {
            index: f"{world.workers} workers don't fit any more: {nodes}"
            for index, world in enumerate(waiting)
            if not pool.holds(world)
        }

    def stay(self, slot: int, waiting: Sequence[World], *, failures: Failures) -> bool:
        """True if a slot has nodes and sessions may still use all of them.

        Args:
            slot: its number.
            waiting: sessions that would get nodes now, the rest of this one among them.
            failures: of this run so far.
        """
        places = self._places.get(slot)
        return places is not None and places.keys() <= self._pool(waiting, failures).rooms.keys()

    def take(self, slot: int, places: Places) -> None:
        """Note that a slot's session has these nodes from now on."""
        self._places[slot] = places

    def release(self, slot: int) -> None:
        """Note that a slot's session has ended."""
        self._places.pop(slot, None)

    def take_notes(self) -> list[str]:
        """Lines on nodes that are left out, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _pool(self, waiting: Sequence[World], failures: Failures) -> NodePool:
        """The nodes that are there and stay.

        Nodes on which trials died are left out where the others can hold all that waits.
        """
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            # A head that does not answer now may do so at the next look.
            with suppress(ray.exceptions.RayError):
                self._nodes = nodes_now()
            self._looked_at = now
        staying = [node for node in self._nodes if node.leaves_at is None]
        leaving = [node for node in self._nodes if node.leaves_at is not None]
        self._note(leaving, "is being taken back")
        failing = FailureCounts(failures).failing()
        sound = self._pool_of([node for node in staying if node.node_id not in failing])
        if not failing:
            return sound
        if not all(sound.holds(world) for world in set(waiting)):
            return self._pool_of(staying)
        reason = f"is left out: processes of {STRIKES} trials or starts died there"
        self._note([node for node in staying if node.node_id in failing], reason)
        return sound

    def _pool_of(self, nodes: Sequence[NodeNow]) -> NodePool:
        rooms = {node.node_id: room_for(node.resources, self._per_worker) for node in nodes}
        return NodePool(rooms=rooms, shares_nodes=self._shares_nodes)

    def _note(self, nodes: Sequence[NodeNow], reason: str) -> None:
        new = [node for node in nodes if node.node_id not in self._left_out]
        self._notes += [f"node {node.name} {reason}" for node in new]
        self._left_out |= {node.node_id for node in new}


def merged(failures: Collection[Failures]) -> dict[str, frozenset[str]]:
    """Failures that several slots have counted.

    >>> merged([{"t": frozenset({"a"})}, {"t": frozenset({"b"}), "u": frozenset({"b"})}])["u"]
    frozenset({'b'})
    """
    nodes: dict[str, frozenset[str]] = {}
    for counts in failures:
        for trial, died_on in counts.items():
            nodes[trial] = nodes.get(trial, frozenset()) | died_on
    return nodes
