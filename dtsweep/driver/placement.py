"""Gives waiting sessions to slots: when each begins, and on which nodes."""

from __future__ import annotations

from collections.abc import Sequence

from dtsweep.driver.allotments import Allotments, Failures, merged
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.slots import SlotActor
from dtsweep.driver.unmeasured import Unmeasured
from dtsweep.sweep.point import World


class Placement:
    """Sessions of a run on their way to slots and nodes."""

    def __init__(
        self,
        queue: Queue,
        slots: Sequence[SlotActor],
        recorder: Recorder,
        allotments: Allotments | None,
    ) -> None:
        """Begin nothing yet.

        Args:
            queue: has the sessions that wait.
            slots: of the run; their owner replaces those whose process has ended.
            recorder: stores trials whose world the nodes can't hold any more.
            allotments: gives sessions their nodes; None where each may use all of them.
        """
        self._queue = queue
        self._slots = slots
        self._recorder = recorder
        self._allotments = allotments

    def begin_sessions(self) -> None:
        """Give sessions to slots that have none, as far as there are nodes."""
        if self._allotments is None:
            for slot in self._slots:
                slot.has_nodes = True
                if not self._queue.has_work(slot.index) and self._queue.has_waiting:
                    self._queue.begin(slot.index)
            return
        self.free_nodes()
        while self._begin_one(self._allotments):
            pass
        self._recorder.say(self._allotments.take_notes())

    def free_nodes(self) -> None:
        """Free the nodes of sessions that have ended, and those of sessions that need others."""
        allotments = self._allotments
        if allotments is None:
            return
        for slot in self._slots:
            if slot.has_ended_session():
                allotments.release(slot.index)
            if slot.is_busy or not slot.has_nodes:
                continue
            if not self._queue.has_work(slot.index) or not self._stays(slot, allotments):
                # Its ranks hold the nodes until it has ended.
                slot.end_session()

    def _stays(self, slot: SlotActor, allotments: Allotments) -> bool:
        """True if a slot's session, which has work left, may go on where it is."""
        failures = self._failures()
        waiting = [self._queue.world_of(slot.index)]
        if failures:
            waiting += self._queue.waiting_worlds()
        return allotments.stay(slot.index, waiting, failures=failures)

    def _begin_one(self, allotments: Allotments) -> bool:
        """Give nodes to the next session that may have some; True if one got them."""
        without_nodes = [slot for slot in self._slots if slot.may_get_nodes]
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
        begin = allotments.next(waiting, failures=self._failures())
        if begin is None:
            return self._refuse_misfits(allotments, waiting, begun)
        index, places = begin
        if index < len(begun):
            slot = begun[index]
        else:
            slot = empty[0]
            self._queue.begin(slot.index, index - len(begun))
        allotments.take(slot.index, places)
        slot.has_nodes, slot.is_up, slot.places = True, False, places
        return True

    def _refuse_misfits(
        self,
        allotments: Allotments,
        waiting: Sequence[World],
        begun: Sequence[SlotActor],
    ) -> bool:
        """Give sessions up that the nodes can't hold any more; True if there was one."""
        misfits = allotments.misfits(waiting, failures=self._failures())
        # From the last one on: the others keep their places.
        for index, reason in sorted(misfits.items(), reverse=True):
            if index < len(begun):
                refused = self._queue.refuse_rest(begun[index].index)
            else:
                refused = self._queue.refuse(index - len(begun))
            self._recorder.store_unmeasured(
                Unmeasured(trial=trial, task=task, status="infeasible", reason=reason)
                for trial, task in refused
            )
        return bool(misfits)

    def _failures(self) -> Failures:
        """Nodes on which trials lost processes, as all slots have counted them."""
        return merged([slot.failure_counts or {} for slot in self._slots])
