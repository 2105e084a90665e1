"""The queue of a run: which attempt comes next in each slot, and what follows from how one ended.

Time is given.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dtsweep.driver.slot_queue import (
    Group,
    Queued,
    SlotQueue,
    largest_world,
    taken_out,
)
from dtsweep.plan.pruning import MeasuredPeaks, MemoryOutcome, all_else
from dtsweep.plan.race import Race
from dtsweep.plan.trial import Canaries, Trial, choose_canaries, fits_session
from dtsweep.results.statuses import is_retried
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class BatchLayout:
    """Trials of a batch, laid out where they run."""

    groups: Sequence[Sequence[Trial]]
    """Trials that may share a session, in the order in which they run."""

    refused: Sequence[tuple[Trial, str]] = ()
    """Trials that the cluster can't hold, each with the reason."""

    canaries: Canaries = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Of every row of the batch."""


class Queue:
    """Hands out attempts by slot.

    Canaries stand around each session's trials, retries after their world.
    """

    def __init__(
        self,
        sweep: Sweep,
        *,
        slots: int = 1,
        peaks: Iterable[MemoryOutcome] = (),
        race: Race | None = None,
        checkpoints: str | None = None,
    ) -> None:
        """Begin without trials.

        Args:
            sweep: whose trials it hands out.
            slots: sessions that run side by side.
            peaks: what is known of memory.
            race: of trainings to a target; None where the results have none.
            checkpoints: folder in which trainings are kept; None keeps none.
        """
        self._sweep = sweep
        self._race = race or Race(sweep.training_goal)
        self._checkpoints = checkpoints
        self._canaries: Canaries = {}
        self._waiting: list[Group] = []
        self._slots = [SlotQueue() for _ in range(slots)]
        self._peaks = MeasuredPeaks(peaks)

    def extend(self, groups: Sequence[Sequence[Trial]], canaries: Canaries) -> None:
        """Line the trials of another batch up behind the others.

        A world that had a canary keeps it, so that its sessions can be compared.
        """
        self._waiting.extend(deque((trial, 1) for trial in group) for group in groups)
        self._canaries = {**canaries, **self._canaries}

    @property
    def waiting(self) -> int:
        """Number of trials that are left to hand out."""
        return sum(not trial.is_canary for group in self._groups for trial, _ in group)

    @property
    def _groups(self) -> list[Group]:
        """The trials of each session, of those that no slot has begun first."""
        return [*self._waiting, *(slot.group for slot in self._slots)]

    @property
    def is_empty(self) -> bool:
        """True if nothing is left to hand out."""
        return not self._waiting and not any(map(self.has_work, range(len(self._slots))))

    def has_work(self, slot: int) -> bool:
        """True if something of its session is left to hand out to this slot."""
        return bool(self._slots[slot].group)

    @property
    def has_waiting(self) -> bool:
        """True if there is a session that no slot has begun."""
        return bool(self._waiting)

    def waiting_worlds(self) -> list[World]:
        """Largest worlds of the sessions that no slot has begun, in their order."""
        return [largest_world(group) for group in self._waiting]

    def world_of(self, slot: int) -> World:
        """Largest world of what is left of a slot's session."""
        return largest_world(self._slots[slot].group)

    def begin(self, slot: int, index: int = 0) -> None:
        """Give a waiting session to a slot that has none."""
        queue = self._slots[slot]
        queue.group = self._waiting.pop(index)
        if not self._goes_on(queue):
            queue.live = (queue.group[0][0].repeat, largest_world(queue.group))
            queue.watch(self._sweep, self._canaries)

    def _goes_on(self, queue: SlotQueue) -> bool:
        """True if the live session also measures this batch of a search: it has its canaries."""
        # Of several slots, one without work ends its session, so that others get its nodes.
        is_kept = self._sweep.search is not None and len(self._slots) == 1
        if queue.live is None or not is_kept or self._sweep.measure.fresh:
            return False
        first = queue.group[0][0]
        repeat, largest = queue.live
        nests = self._sweep.measure.nested
        return first.repeat == repeat and fits_session(first.point.world, largest, nests=nests)

    def first_of(self, slot: int) -> tuple[str, World]:
        """Group and world of the session that a slot has begun."""
        trial, attempt = self._slots[slot].group[0]
        return self._task_of(trial, attempt).session_group, trial.point.world

    def refuse(self, index: int) -> list[tuple[Trial, Task]]:
        """Take a waiting session out that can't run, with the tasks of its trials."""
        return self._with_tasks(self._waiting.pop(index))

    def refuse_rest(self, slot: int) -> list[tuple[Trial, Task]]:
        """Take out what is left of a slot's session, which can't run any more."""
        group = self._slots[slot].group
        self._slots[slot].group = deque()
        return self._with_tasks(group)

    def next(self, slot: int, *, now: float) -> tuple[Trial, Task]:
        """Take a slot's next trial, which it has, and make the task of the attempt.

        A slot without a session begins the first one that waits. `now` is by the monotonic clock,
        in seconds.
        """
        if not self.has_work(slot):
            self.begin(slot)
        queue = self._slots[slot]
        trial, attempt = queue.take(now=now)
        task = self._task_of(trial, attempt)
        if trial.is_canary:
            return trial, task
        if attempt == 1 and (others := queue.take_in_turn(trial)):
            tasks = [
                replace(self._task_of(other, 1), known_peak_bytes=other.known_peak_bytes)
                for other in others
            ]
            task = replace(
                task,
                in_turn=tasks,
                turns_by=_turns_by(self._sweep, [trial, *others]),
                known_peak_bytes=trial.known_peak_bytes,
            )
            return replace(trial, in_turn=others), task
        return trial, task

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
        """Note how an attempt ended; queue another one where that may help."""
        queue = self._slots[slot]
        if not trial.is_canary and is_retried(status, attempt=task.attempt):
            alone = replace(trial, takes_turns=False, in_turn=())
            queue.add_again(alone, attempt=task.attempt + 1)
        if trial.is_canary and status == "oom_device":
            self._watch_smaller(queue, trial.point)
        # A session that was started in between may be too small for the canary of the one before.
        is_small = (
            queue.canary is not None and (session_workers or math.inf) < queue.canary.point.workers
        )
        if session_has_ended:
            queue.live = None
        if session_has_ended or is_small:
            queue.watch_the_next(self._sweep, self._canaries)

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
        given_up = self._take_out(
            [self._slots[slot].group, *self._waiting],
            lambda trial: hopeless_for == "run" or trial.point.world == task.point.world,
        )
        return self._with_tasks(given_up)

    def prune(
        self, trial: Trial, status: str, facts: Mapping[str, Any] = _NO_FACTS
    ) -> list[tuple[Trial, str]]:
        """Take out the trials that would run out of device memory, now that a trial has ended.

        It is called before `ended`, which looks at the remaining trials.

        Returns:
            The trials that are skipped now, each with its reason.
        """
        if status not in ("ok", "oom_device"):
            return []
        if status == "ok" or not trial.is_canary:
            self._peaks.add(MemoryOutcome(trial.point, status, facts))
        if trial.is_canary or not self._sweep.measure.prune:
            return []
        waiting = [queued for group in self._groups for queued in group if not queued[0].is_canary]
        family = all_else(trial.point)
        trials = [queued for queued, _ in waiting if all_else(queued.point) == family]
        # Another attempt was begun already.
        new = {queued.trial_id for queued, attempt in waiting if attempt == 1}
        reasons = self._peaks.out_of_memory(trials, new=new)
        pruned = self._take_out(self._groups, lambda queued: queued.trial_id in reasons)
        return [(one, reasons[one.trial_id]) for one, _ in pruned if not one.is_canary]

    def _take_out(self, groups: Iterable[Group], is_out: Callable[[Trial], bool]) -> list[Queued]:
        """Take trials out of sessions, and sessions that wait of which nothing is left."""
        taken = [trial for group in groups for trial in taken_out(group, is_out)]
        self._waiting = [group for group in self._waiting if group]
        return taken

    def note_training(self, task: Task, time_s: float) -> None:
        """Note how long a launch of a point has trained until it reached the target."""
        self._race.note(task.point_id, task.point.semantics, time_s)

    def _task_of(self, trial: Trial, attempt: int) -> Task:
        task = task_of(
            self._sweep,
            trial.point,
            repeat=trial.repeat,
            attempt=attempt,
            role=trial.role,
            measure=trial.measure,
        )
        if not task.train_s:
            return task
        folder = self._checkpoints and f"{self._checkpoints}/{task.trial_id}"
        return replace(task, train_s=min(task.train_s, self._race.limit_s), checkpoint=folder)

    def _with_tasks(self, group: Iterable[Queued]) -> list[tuple[Trial, Task]]:
        return [
            (trial, self._task_of(trial, attempt))
            for trial, attempt in group
            if not trial.is_canary
        ]

    def _watch_smaller(self, queue: SlotQueue, full: Point) -> None:
        """Use a smaller micro-batch for canaries, in this session and later ones.

        A session's canary has run out of memory.
        """
        same_world = (trial for trial, _ in queue.trials if trial.point.world == full.world)
        smaller = choose_canaries(
            [trial for trial in same_world if trial.point.micro_batch < full.micro_batch]
        )
        others = {world: one for world, one in self._canaries.items() if world != full.world}
        self._canaries = {**others, **smaller}
        queue.watch_again(self._sweep, self._canaries)


def _turns_by(sweep: Sweep, trials: Sequence[Trial]) -> str | None:
    """Column that alone decides between points of a sweep; None where more than it counts."""
    question = sweep.question
    goal = question.goal if question else None
    has_models = any(name.startswith(("workload.", "args.")) for name in sweep.axes)
    has_semantics = len({trial.point.semantics for trial in trials}) > 1
    if goal is None or goal.where or goal.least_rate or has_models or has_semantics:
        return None
    if goal.minimize == "latency_s":
        return "latency_s"
    return "samples_per_s" if goal.maximize == "samples_per_s" else None
