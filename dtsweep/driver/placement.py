"""Gives waiting sessions to slots: when each begins, and on which nodes.

One session at a time may use all nodes, and Ray chooses. Where several run at the same time, the
driver chooses: of the sessions that wait, the first one that fits onto free nodes begins. The
largest worlds come first, so the nodes that a large session leaves hold the next one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import ray

from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.slots import SlotActor
from dtsweep.driver.unmeasured import Unmeasured
from dtsweep.plan.allotment import NodePool
from dtsweep.session.node_choice import (
    FAILS,
    LEAVES,
    FailureCounts,
    Node,
    NodeNotes,
    nodes_now,
    room_for,
    rooms_in_words,
)
from dtsweep.sweep.point import World

_LOOK_EVERY_S = 1.0
"""Interval of looks at the nodes of a cluster."""


class StayingNodes:
    """Nodes of a cluster for sessions that run at the same time."""

    def __init__(self, per_worker: Mapping[str, float], *, shares_nodes: bool) -> None:
        self._per_worker = per_worker
        self._shares_nodes = shares_nodes
        self._nodes: list[Node] = []
        self._looked_at = -_LOOK_EVERY_S
        self.notes = NodeNotes()

    def pool(self, waiting: Sequence[World], failures: FailureCounts) -> NodePool:
        """The nodes that are there and stay.

        Nodes on which trials died are left out where the others can hold all that waits.
        """
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_EVERY_S:
            # A head that does not answer now may do so at the next look.
            with suppress(ray.exceptions.RayError):
                self._nodes = nodes_now()
            self._looked_at = now
        staying = [node for node in self._nodes if node.leaves_at is None]
        self.notes.add([node for node in self._nodes if node.leaves_at is not None], LEAVES)
        failing = failures.failing()
        sound = self._pool_of([node for node in staying if node.node_id not in failing])
        if not failing:
            return sound
        if not all(sound.holds(world) for world in set(waiting)):
            return self._pool_of(staying)
        self.notes.add([node for node in staying if node.node_id in failing], FAILS)
        return sound

    def _pool_of(self, nodes: Sequence[Node]) -> NodePool:
        rooms = {node.node_id: room_for(node.resources, self._per_worker) for node in nodes}
        return NodePool(rooms=rooms, shares_nodes=self._shares_nodes)


class Placement:
    """Sessions of a run on their way to slots and nodes."""

    def __init__(
        self,
        queue: Queue,
        slots: Sequence[SlotActor],
        recorder: Recorder,
        nodes: StayingNodes | None,
    ) -> None:
        self._queue = queue
        self._slots = slots
        self._recorder = recorder
        self._nodes = nodes

    def begin_sessions(self) -> None:
        """Give sessions to slots that have none, as far as there are nodes."""
        if self._nodes is None:
            for slot in self._slots:
                slot.has_nodes = True
                if not self._queue.has_work(slot.index) and self._queue.has_waiting:
                    self._queue.begin(slot.index)
            return
        self.free_nodes()
        while self._begin_one(self._nodes):
            pass
        self._recorder.say(self._nodes.notes.take())

    def free_nodes(self) -> None:
        """Free the nodes of sessions that have ended, and those of sessions that need others."""
        if self._nodes is None:
            return
        for slot in self._slots:
            slot.look_for_end()
            if slot.is_busy or not slot.has_nodes:
                continue
            if not self._queue.has_work(slot.index) or not self._stays(slot, self._nodes):
                # Its ranks hold the nodes until it has ended.
                slot.end_session()

    def _stays(self, slot: SlotActor, nodes: StayingNodes) -> bool:
        """True if a slot's session, which has work left, may go on where it is."""
        failures = self._failures()
        waiting = [self._queue.world_of(slot.index)]
        if failures.by_trial():
            waiting += self._queue.waiting_worlds()
        rooms = nodes.pool(waiting, failures).rooms
        return slot.places is not None and slot.places.keys() <= rooms.keys()

    def _begin_one(self, nodes: StayingNodes) -> bool:
        """Give nodes to the next session that may have some; True if one got them."""
        idle = [slot for slot in self._slots if not slot.is_busy and slot.ending is None]
        without_nodes = [slot for slot in idle if not slot.has_nodes]
        # A session that has begun and lost its nodes comes before those that have not begun.
        begun = [slot for slot in without_nodes if self._queue.has_work(slot.index)]
        empty = [slot for slot in without_nodes if not self._queue.has_work(slot.index)]
        waiting = [self._queue.world_of(slot.index) for slot in begun]
        is_moving = any(
            slot.ending is not None and self._queue.has_work(slot.index) for slot in self._slots
        )
        if empty and not is_moving:
            waiting += self._queue.waiting_worlds()
        if not waiting:
            return False
        pool = nodes.pool(waiting, self._failures())
        taken = [slot.places for slot in self._slots if slot.places is not None]
        choices = {world: pool.places_for(world, taken=taken) for world in dict.fromkeys(waiting)}
        fitting = [index for index, world in enumerate(waiting) if choices[world] is not None]
        if not fitting:
            return self._refuse_misfits(pool, waiting, begun)
        index = fitting[0]
        if index < len(begun):
            slot = begun[index]
        else:
            slot = empty[0]
            self._queue.begin(slot.index, index - len(begun))
        slot.has_nodes = True
        slot.places = choices[waiting[index]]
        return True

    def _refuse_misfits(
        self, pool: NodePool, waiting: Sequence[World], begun: Sequence[SlotActor]
    ) -> bool:
        """Give sessions up that the nodes can't hold any more; True if there was one."""
        # Of no nodes at all the head has not said yet which ones there are.
        if not pool.rooms:
            return False
        misfits = [index for index, world in enumerate(waiting) if not pool.holds(world)]
        nodes = rooms_in_words([room for room in pool.rooms.values() if room])
        # From the last one on: the others keep their places.
        for index in reversed(misfits):
            if index < len(begun):
                refused = self._queue.refuse_rest(begun[index].index)
            else:
                refused = self._queue.refuse(index - len(begun))
            reason = f"{waiting[index].workers} workers don't fit any more: {nodes}"
            self._recorder.store_unmeasured(
                Unmeasured(trial=trial, task=task, status="infeasible", reason=reason)
                for trial, task in refused
            )
        return bool(misfits)

    def _failures(self) -> FailureCounts:
        """Nodes on which trials lost processes, as all slots have counted them."""
        failures = FailureCounts()
        for slot in self._slots:
            failures.add(slot.failure_counts or {})
        return failures
