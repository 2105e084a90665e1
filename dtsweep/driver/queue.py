"""The queue of a run: which attempt comes next in each slot, and what follows from how one ended.

Time is given.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtsweep.plan.canary_choice import choose_canaries, has_canaries
from dtsweep.plan.pruning import FittingPoints, out_of_memory
from dtsweep.plan.trial import Trial
from dtsweep.results.statuses import is_retried
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of

CANARY_EVERY_S = 600.0
"""In a session that goes on for longer, the canary is measured in between as well."""

PROFILE_TRIES = 3
"""Trials of a world that are profiled until one succeeds.

The limit holds because the profiler itself may fail.
"""

AlonePoint = tuple[str, frozenset[int]]
"""Point of a canary, and the slots that share the nodes on which it is measured alone."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Trials of a batch, laid out where they run."""

    groups: Sequence[Sequence[Trial]]
    """Trials that may share a session, in the order in which they run."""

    refused: Sequence[tuple[Trial, str]] = ()
    """Trials that the cluster can't hold, each with the reason."""

    canaries: Mapping[World, Trial] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Of every row of the batch."""


@dataclass(kw_only=True)
class SlotQueue:
    """The trials of the session that a slot works off, the largest world first."""

    group: deque[tuple[Trial, int]] = field(default_factory=deque)
    """Each with the number of its attempt."""

    canary: Trial | None = None
    """Trial that is measured at both ends of the session."""

    canary_at: float = 0.0
    """Time at which it was last handed out, by the monotonic clock."""


class Queue:
    """Hands out attempts by slot.

    Canaries stand around each session's trials, retries after their world. Where slots share nodes,
    the first canary of each world is measured alone, and then again next to other trials.
    """

    def __init__(
        self,
        sweep: Sweep,
        groups: Sequence[Sequence[Trial]],
        *,
        neighbours: Sequence[Collection[int]] = ((),),
        canaries: Mapping[World, Trial],
        is_profiled: bool = False,
        fine: Iterable[Point] = (),
    ) -> None:
        """Line the trials up.

        Args:
            sweep: whose tasks are handed out.
            groups: trials that may share a session, in the order of the plan.
            neighbours: of each slot the others that share its nodes.
            canaries: what a session measures at both ends, by its largest world.
            is_profiled: whether the first trial of each world is to be profiled.
            fine: points that ended `ok` before: what they fit into is known.
        """
        self._sweep = sweep
        self._neighbours = neighbours
        self._canaries: Mapping[World, Trial] = {}
        self._is_profiled = is_profiled
        self._waiting = deque[deque[tuple[Trial, int]]]()
        self.extend(groups, canaries)
        self._slots = [SlotQueue() for _ in neighbours]
        self._profiles = Counter[World]()
        self._fine = FittingPoints(fine)
        self._alone: dict[AlonePoint, str] = {}
        """Attempt that measured a canary's point alone, or does so now."""
        self._failed_alone = Counter[AlonePoint]()

    def extend(self, groups: Sequence[Sequence[Trial]], canaries: Mapping[World, Trial]) -> None:
        """Line the trials of another batch up behind the others.

        A world that had a canary keeps it, so that its sessions can be compared.
        """
        self._waiting.extend(deque((trial, 1) for trial in group) for group in groups)
        self._canaries = {**canaries, **self._canaries}

    @property
    def waiting(self) -> int:
        """Number of trials that are left to hand out."""
        groups = (*self._waiting, *(slot.group for slot in self._slots))
        return sum(not trial.is_canary for group in groups for trial, _ in group)

    def first_sessions(self) -> list[tuple[str, World]]:
        """Group and world of the session that each slot will need first."""
        firsts = [group[0][0] for group in itertools.islice(self._waiting, len(self._slots))]
        return [(self._task_of(trial, 1).session_group, trial.point.world) for trial in firsts]

    @property
    def is_empty(self) -> bool:
        """True if nothing is left to hand out."""
        return not any(map(self.has_work, range(len(self._slots))))

    def has_work(self, slot: int) -> bool:
        """True if there is something to hand out to this slot."""
        return bool(self._slots[slot].group or self._waiting)

    def wants_alone(self, slot: int) -> bool:
        """True if a slot's next attempt is to be measured while its neighbours run nothing."""
        queue = self._slots[slot]
        if not self._sweep.resources.share_nodes:
            return False
        if not queue.group:
            self._begin_group(queue)
        return self._is_first_alone(slot, queue.group[0][0])

    @property
    def sets_power_limits(self) -> bool:
        """True if trials of the sweep set power limits of GPUs."""
        return "power_limit" in self._sweep.axes

    def next_world(self, slot: int) -> World | None:
        """The world of a slot's next session, once no trial of the present one is left to hand out.

        Until then None.
        """
        if self._waiting and all(trial.is_canary for trial, _ in self._slots[slot].group):
            return self._waiting[0][0][0].point.world
        return None

    def next(self, slot: int, *, now: float) -> tuple[Trial, Task]:
        """Take a slot's next trial, which it has, and make the task of the attempt.

        Args:
            slot: its number.
            now: by the monotonic clock, in seconds.
        """
        queue = self._slots[slot]
        if not queue.group:
            self._begin_group(queue)
        elif (
            queue.canary
            and now - queue.canary_at > CANARY_EVERY_S
            and not queue.group[0][0].is_canary
        ):
            queue.group.appendleft((queue.canary, 1))
        trial, attempt = queue.group.popleft()
        task = self._task_of(trial, attempt)
        if trial.is_canary:
            queue.canary_at = now
            if self._is_first_alone(slot, trial):
                self._alone[self._alone_point(slot, task.point_id)] = task.attempt_id
                queue.group.appendleft((trial, attempt))
            return trial, task
        return trial, replace(task, is_profiled=self._wants_profile(trial.point))

    def ended(
        self,
        slot: int,
        trial: Trial,
        task: Task,
        status: str,
        *,
        session_has_ended: bool,
        session_workers: int | None = None,
    ) -> None:
        """Note how an attempt ended; queue another one where that may help.

        Args:
            slot: that ran it.
            trial: what was run.
            task: the attempt.
            status: how it ended.
            session_has_ended: whether the next attempt gets another session.
            session_workers: of the session that ran it, where it is known.
        """
        queue = self._slots[slot]
        if task.is_profiled:
            self._profiles[trial.point.world] += PROFILE_TRIES if status == "ok" else 1
        if not trial.is_canary and is_retried(status, attempt=task.attempt):
            # Behind the others of worlds as large: smaller ones can follow in its session, larger
            # ones can't.
            as_large = [
                not t.is_canary and t.point.workers >= trial.point.workers for t, _ in queue.group
            ]
            place = sum(as_large)
            if status == "reused_process":
                # The first one in the new processes.
                place = 0
            queue.group.insert(place, (trial, task.attempt + 1))
        alone = self._alone_point(slot, task.point_id)
        if status != "ok" and self._alone.get(alone) == task.attempt_id:
            self._failed_alone[alone] += 1
            # Else the next one is measured next to others, like all that follow.
            if is_retried(status, attempt=self._failed_alone[alone]):
                del self._alone[alone]
        if trial.is_canary and status == "oom_device":
            self._watch_smaller(queue, trial.point)
        # A session that was started in between may be too small for the canary of the one before.
        is_small = (
            queue.canary is not None and (session_workers or math.inf) < queue.canary.point.workers
        )
        if session_has_ended or is_small:
            self._watch_the_next(queue)

    def give_up(
        self, slot: int, task: Task, *, hopeless_for: str | None
    ) -> list[tuple[Trial, Task]]:
        """Take out what would end as an attempt whose session did not come up; before `ended`.

        Args:
            slot: that ran it.
            task: the attempt.
            hopeless_for: whose other trials would end the same way: of its `world` or of the whole
                `run`; None gives up none.

        Returns:
            Trials of this slot and of those that no slot has begun, and the tasks that they would
            have had.
        """
        if hopeless_for is None:
            return []
        worlds = None
        if hopeless_for != "run":
            worlds = {task.point.world}
        given_up: list[tuple[Trial, int]] = []
        for group in (self._slots[slot].group, *self._waiting):
            for _ in range(len(group)):
                trial, attempt = group.popleft()
                if worlds is not None and trial.point.world not in worlds:
                    group.append((trial, attempt))
                elif not trial.is_canary:
                    given_up.append((trial, attempt))
        self._waiting = deque(group for group in self._waiting if group)
        return [(trial, self._task_of(trial, attempt)) for trial, attempt in given_up]

    def prune(self, trial: Trial, status: str) -> list[tuple[Trial, str]]:
        """Take out the trials that would run out of device memory as a trial has.

        It is called before `ended`, which looks at the remaining trials.

        Returns:
            The trials that are skipped now, each with its reason.
        """
        if status == "ok":
            self._fine.add(trial.point)
        if status != "oom_device" or trial.is_canary or not self._sweep.measure.prune:
            return []
        groups = [*self._waiting, *(slot.group for slot in self._slots)]
        waiting = [queued for group in groups for queued, _ in group if not queued.is_canary]
        reasons = out_of_memory(waiting, [trial.point], fine=self._fine)
        for group in groups:
            kept = [
                (queued, attempt) for queued, attempt in group if queued.trial_id not in reasons
            ]
            group.clear()
            group.extend(kept)
        self._waiting = deque(group for group in self._waiting if group)
        return [
            (queued, reasons[queued.trial_id]) for queued in waiting if queued.trial_id in reasons
        ]

    def _task_of(self, trial: Trial, attempt: int) -> Task:
        return task_of(
            self._sweep,
            trial.point,
            repeat=trial.repeat,
            attempt=attempt,
            role=trial.role,
            measure=trial.measure,
        )

    def _is_first_alone(self, slot: int, trial: Trial) -> bool:
        """True if a trial is the first canary of its point on nodes that slots share."""
        if not self._sweep.resources.share_nodes or not trial.is_canary:
            return False
        if not self._neighbours[slot]:
            return False
        return self._alone_point(slot, identity(trial.point)) not in self._alone

    def _alone_point(self, slot: int, point_id: str) -> AlonePoint:
        """A canary's point on the nodes of a slot, which its neighbours use, too."""
        return point_id, frozenset([slot, *self._neighbours[slot]])

    def _begin_group(self, queue: SlotQueue) -> None:
        queue.group = self._waiting.popleft()
        self._watch(queue)

    def _watch(self, queue: SlotQueue) -> None:
        """Put the canary of the first trial, whose world is the largest, at both ends."""
        first = queue.group[0][0]
        canary = None
        if has_canaries(self._sweep, [trial for trial, _ in queue.group]):
            canary = self._canaries.get(first.point.world)
        queue.canary = canary and replace(canary, repeat=first.repeat)
        if queue.canary is not None:
            queue.group.appendleft((queue.canary, 1))
            queue.group.append((queue.canary, 1))

    def _watch_the_next(self, queue: SlotQueue) -> None:
        """Have the session that follows one that ended too early watched by what fits into it."""
        waiting = [(trial, attempt) for trial, attempt in queue.group if not trial.is_canary]
        if not waiting:
            # Another session would say nothing about the one that the canary was to watch.
            queue.group.clear()
        elif queue.canary is not None and waiting[0][0].point.world != queue.canary.point.world:
            queue.group = deque(waiting)
            self._watch(queue)

    def _watch_smaller(self, queue: SlotQueue, full: Point) -> None:
        """Use a smaller micro-batch for canaries, in this session and later ones.

        A session's canary has run out of memory.
        """
        waiting = [(trial, attempt) for trial, attempt in queue.group if not trial.is_canary]
        same_world = (trial for trial, _ in waiting if trial.point.world == full.world)
        smaller = choose_canaries(
            [trial for trial in same_world if trial.point.micro_batch < full.micro_batch]
        )
        other_canaries = {
            world: canary for world, canary in self._canaries.items() if world != full.world
        }
        self._canaries = {**other_canaries, **smaller}
        queue.group = deque(waiting)
        queue.canary = None
        if waiting:
            self._watch(queue)

    def _wants_profile(self, point: Point) -> bool:
        can_follow = point.mode.can_restart
        return self._is_profiled and can_follow and self._profiles[point.world] < PROFILE_TRIES
