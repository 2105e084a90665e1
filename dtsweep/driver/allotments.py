"""Nodes of the sessions of a run: which waiting session begins next, and where.

One session at a time may use all nodes, and Ray chooses. Where several run at the same time, nodes
are allotted here: on a cluster whose nodes stay by their ids, on an autoscaling one by number, as
many as it can have. There a session asks for its nodes itself, and claims those that come.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import ray

from dtsweep.plan.allotment import Begin, NodePool, Places, RunningSession, WaitingSession
from dtsweep.session.node_choice import (
    STRIKES,
    FailureCounts,
    NodeNow,
    nodes_now,
    room_for,
    rooms_in_words,
)

LOOK_EVERY_S = 2.0
"""Interval of looks at the nodes of a cluster."""

HOLD_BACK_S = 60.0
"""A session that has waited so long for an autoscaler's nodes is let through: none begins then."""

Failures = Mapping[str, frozenset[str]]
"""Nodes on which each trial has lost a process."""


class Nodes(Protocol):
    """Nodes that sessions may use."""

    def pool(self, waiting: Sequence[WaitingSession], failures: Failures) -> NodePool | None:
        """The nodes; None where only waiting shows which ones there can be.

        Args:
            waiting: sessions that wait for nodes.
            failures: of this run so far.
        """
        ...

    def take_notes(self) -> list[str]:
        """Lines for the user since the last call."""
        ...


class StayingNodes:
    """Nodes of a cluster without an autoscaler; they may still fail, be taken back, or join."""

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

    def pool(self, waiting: Sequence[WaitingSession], failures: Failures) -> NodePool:
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
        if not all(sound.holds(session) for session in waiting):
            return self._pool_of(staying)
        reason = f"is left out: processes of {STRIKES} trials or starts died there"
        self._note([node for node in staying if node.node_id in failing], reason)
        return sound

    def take_notes(self) -> list[str]:
        """Lines on nodes that are left out, since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _pool_of(self, nodes: Sequence[NodeNow]) -> NodePool:
        rooms = {node.node_id: room_for(node.resources, self._per_worker) for node in nodes}
        return NodePool(rooms=rooms, shares_nodes=self._shares_nodes)

    def _note(self, nodes: Sequence[NodeNow], reason: str) -> None:
        new = [node for node in nodes if node.node_id not in self._left_out]
        self._notes += [f"node {node.name} {reason}" for node in new]
        self._left_out |= {node.node_id for node in new}


class GrowingNodes:
    """Nodes that an autoscaling cluster can have, by number."""

    def __init__(self, rooms: Sequence[int] | None) -> None:
        """Take the number of workers that each node can hold; None where that is unknown."""
        self._pool = None
        if rooms is not None:
            self._pool = NodePool(rooms={f"node {index}": room for index, room in enumerate(rooms)})

    def pool(self, waiting: Sequence[WaitingSession], failures: Failures) -> NodePool | None:
        """Nodes at their maxima; others come in the place of those that fail."""
        del waiting, failures
        return self._pool

    def take_notes(self) -> list[str]:
        """No lines; the slots say what they leave out."""
        return []


class Allotments:
    """Sessions that have nodes, by slot."""

    def __init__(self, nodes: Nodes) -> None:
        """Begin without a session."""
        self._nodes = nodes
        self._places: dict[int, Places] = {}

    def next(
        self,
        waiting: Sequence[WaitingSession],
        *,
        ends_at: Mapping[int, float],
        failures: Failures,
        now: float,
    ) -> Begin | None:
        """The next of these sessions that may begin, and its nodes; None if all have to wait.

        Args:
            waiting: sessions in the order in which they should begin.
            ends_at: expected end of each session that has nodes, by slot.
            failures: of this run so far.
            now: by the clock of `ends_at`, in seconds.
        """
        pool = self._nodes.pool(waiting, failures)
        if pool is None:
            # Each asks for its nodes, and waits until they come.
            return Begin(index=0, places={})
        running = [
            RunningSession(places=places, ends_at=ends_at[slot])
            for slot, places in self._places.items()
        ]
        return pool.next_to_begin(waiting, running, now=now)

    def misfits(self, waiting: Sequence[WaitingSession], *, failures: Failures) -> dict[int, str]:
        """Reasons for sessions that don't fit on the nodes any more, by their place."""
        pool = self._nodes.pool(waiting, failures)
        if pool is None or not pool.rooms:
            # Of no nodes at all the head has not said yet which ones there are.
            return {}
        nodes = rooms_in_words([room for room in pool.rooms.values() if room])
        return {
            index: f"{session.workers} workers don't fit any more: {nodes}"
            for index, session in enumerate(waiting)
            if not pool.holds(session)
        }

    def stay(self, slot: int, waiting: Sequence[WaitingSession], *, failures: Failures) -> bool:
        """True if a slot has nodes and sessions may still use all of them.

        Args:
            slot: its number.
            waiting: sessions that would get nodes now, the rest of this one among them.
            failures: of this run so far.
        """
        places = self._places.get(slot)
        if places is None:
            return False
        pool = self._nodes.pool(waiting, failures)
        return pool is None or places.keys() <= pool.rooms.keys()

    def take(self, slot: int, places: Places) -> None:
        """Note that a slot's session has these nodes from now on."""
        self._places[slot] = places

    def release(self, slot: int) -> None:
        """Note that a slot's session has ended."""
        self._places.pop(slot, None)

    def take_notes(self) -> list[str]:
        """Lines for the user since the last call."""
        return self._nodes.take_notes()


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
