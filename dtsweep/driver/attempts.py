"""The attempts of a run: handed out to free slots, watched, their results fetched and stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import ray

from dtsweep.cluster.node_account import NodeAccount
from dtsweep.driver.members import results_of_points, trials_of_attempt
from dtsweep.driver.placement import Placement, StayingNodes
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.running import Running, fetched, overdue, without_head
from dtsweep.driver.slots import close_slots, start_slot, stop_slots
from dtsweep.driver.supply import Supply
from dtsweep.driver.unmeasured import Unmeasured
from dtsweep.errors import StorageError, SweepError
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.charge import NO_CHARGE
from dtsweep.metrics.own_loops import NO_STEP, TOO_SHORT
from dtsweep.metrics.rows import memory_facts
from dtsweep.plan.trial import Trial
from dtsweep.session.session_settings import Settings
from dtsweep.sweep.task import Task

_MOST_COUNTED_S = 5.0
"""Of the time between two looks at the slots at most so much is the driver's own."""

_RUNNER_ANSWERS_S = 60.0
"""Once its slot was killed, Tune's process of a trial has this long to notice."""


class Attempts:
    """Hands out the queue's attempts to slots, and has their results stored."""

    def __init__(  # noqa: PLR0913
        self,
        queue: Queue,
        settings: Sequence[Settings],
        recorder: Recorder,
        *,
        supply: Supply | None = None,
        nodes: StayingNodes | None = None,
        account: NodeAccount | None = None,
        head_answers: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start the slots.

        Args:
            queue: says what comes next; it has as many slots.
            settings: of the sessions of each slot.
            recorder: stores each attempt that ended.
            supply: fills the queue again; None where it has all trials.
            nodes: of the cluster; None where a single session uses all of them.
            account: of the nodes; None counts none.
            head_answers: whether the cluster's head does, asked when an attempt has ended.
        """
        self._queue = queue
        self._recorder = recorder
        self._supply = supply
        self._account = account
        self._head_answers = head_answers
        self._slots = [
            start_slot(index, slot_settings) for index, slot_settings in enumerate(settings)
        ]
        self._placement = Placement(queue, self._slots, recorder, nodes)
        self._watched_at: float | None = None
        """Time of the last look at the slots, by the monotonic clock."""
        self.running: dict[str, Running] = {}
        self.failure: BaseException | None = None
        self._unfetched: list[Running] = []
        self._placement.begin_sessions()
        for slot in self._slots:
            if queue.has_work(slot.index):
                # While Tune starts.
                slot.actor.prepare.remote(*queue.first_of(slot.index), slot.places)

    @property
    def slots(self) -> int:
        """Attempts that may run side by side."""
        return len(self._slots)

    def has_more(self) -> bool:
        """True if something is to be handed out, now or later.

        Where nothing is left and nothing runs, the next batch is asked for.
        """
        is_time_up = self._supply is not None and self._supply.is_time_up
        if not self._queue.is_empty and not is_time_up:
            return True
        if self.running or self._supply is None:
            return False
        return self._supply.refill()

    @property
    def unstored(self) -> list[Running]:
        """Attempts without a row: running ones, and ended ones whose result was not fetched."""
        return [*self._unfetched, *self.running.values()]

    def columns_of_cut(self, cut: Running) -> dict[str, Any]:
        """Columns of the row of an attempt that ends with the run: its time, and its cost."""
        if self._account is None:
            return {}
        return self._account.cut(cut.slot)

    def goes_on(self) -> bool:
        """True if another attempt may be handed out; a failure to find out ends the run."""
        if self.failure is not None:
            return False
        try:
            return self.has_more()
        except Exception as failure:  # noqa: BLE001  # as in `end`
            self.failure = failure
            return False

    def free_nodes(self) -> None:
        """End the sessions that have nothing left, while the last attempts of others run."""
        if self.running and self.failure is None:
            self._placement.free_nodes()

    def begin_next(self, name: str) -> dict[str, Any] | None:
        """Begin the next attempt, in the first slot that is free; None without one.

        Returns:
            What `TrialRunner` needs: task, slot, places, namespace.
        """
        index = self._next_slot()
        if index is None:
            return None
        now = time.monotonic()
        trial, task = self._queue.next(index, now=now)
        self.running[name] = Running(
            trial=trial,
            task=task,
            slot=index,
            began=now,
            started_at=datetime.now(UTC),
        )
        others = len(self.running) - 1
        for attempt in self.running.values():
            attempt.concurrent_trials = max(attempt.concurrent_trials, others)
        if self._account is not None:
            same_nodes = (task.session_group, trial.point.world)
            self._account.handed_out(index, session=same_nodes)
        for member, _ in trials_of_attempt(trial, task):
            self._recorder.began(member)
        self._slots[index].attempt_began = now
        return {
            "task": task,
            "slot": self._slots[index].name,
            "places": self._slots[index].places,
            "namespace": ray.get_runtime_context().namespace,
        }

    def _next_slot(self) -> int | None:
        """The first free slot that may begin an attempt now."""
        self._placement.begin_sessions()
        for slot in self._slots:
            if not slot.is_busy and slot.has_nodes and self._queue.has_work(slot.index):
                return slot.index
        return None

    def end(self, name: str, reply: Mapping[str, Any]) -> None:
        """Take an attempt's result, store it, and queue another attempt where that may help."""
        ended = self.running.pop(name)
        try:
            self._complete(ended, reply)
        except Exception as failure:  # noqa: BLE001  # Tune would wrap it; the driver raises it as it is
            # The first says what is wrong, and with a full disk where its trial was kept.
            self.failure = self.failure or failure
            if not isinstance(failure, StorageError):
                self._unfetched.append(ended)

    def _complete(self, ended: Running, reply: Mapping[str, Any]) -> None:
        slot = self._slots[ended.slot]
        result = fetched(slot.actor, ended, reply)
        if result.failure_counts is not None:
            slot.failure_counts = result.failure_counts
        if result.slot_is_spent:
            slot = self._slots[ended.slot] = slot.replaced()
        slot.attempt_began = None
        if result.refusal is not None:
            raise SweepError(result.refusal)
        if not self._head_answers():
            result = without_head(result)
        wall_s = time.monotonic() - ended.began
        result = replace(result, concurrent_trials=ended.concurrent_trials)
        charge = NO_CHARGE
        if self._account is not None:
            is_trial = not ended.trial.is_canary
            charge = self._account.ended(ended.slot, result, wall_s=wall_s, is_trial=is_trial)
        members = trials_of_attempt(ended.trial, ended.task)
        results = results_of_points(result, [task for _, task in members])
        harness_s = (wall_s - (result.startup_s or 0.0)) / len(results)
        # All are stored before any of them changes what comes next.
        statuses = [
            self._recorder.store(
                trial,
                task,
                one,
                started_at=ended.started_at,
                wall_s=harness_s + (one.startup_s or 0.0),
                charge=charge,
            )
            for (trial, task), one in zip(members, results, strict=True)
        ]
        if ended.trial.is_canary and self._is_hopeless(result):
            raise SweepError(
                f"{result.reason}; other points are likely to end the same way, and were not run"
            )
        for (trial, task), one, status in zip(members, results, statuses, strict=True):
            self._follow_up(ended, trial, task, one, status)

    def _follow_up(
        self, ended: Running, trial: Trial, task: Task, result: AttemptResult, status: str
    ) -> None:
        """Take out the trials that would end as this one, and queue another attempt at it."""
        measured = result.results[0].measured if result.status == "ok" else None
        if measured and measured.is_censored is False and measured.time_to_loss_s:
            self._queue.note_training(task, measured.time_to_loss_s)
        facts = memory_facts(result.results)
        self._recorder.store_pruned(self._queue.prune(trial, status, facts))
        given_up = self._queue.give_up(ended.slot, task, hopeless_for=result.hopeless_for)
        self._queue.ended(
            ended.slot,
            trial,
            task,
            status,
            session_has_ended=result.session_has_ended,
            session_workers=result.session_workers,
        )
        # Their session would not come up, as that of this attempt did not.
        self._recorder.store_unmeasured(
            [
                Unmeasured(
                    trial=other,
                    task=of_other,
                    status=result.status,
                    reason=result.reason,
                    flags=result.flags,
                )
                for other, of_other in given_up
            ]
        )

    def _is_hopeless(self, result: AttemptResult) -> bool:
        """True if a training loop has too few steps or none, and nothing was measured yet."""
        if self._recorder.tally.statuses["ok"] or result.status != "user_error":
            return False
        return any(part in (result.reason or "") for part in (TOO_SHORT, NO_STEP))

    def watch(self, now: float, runners: Mapping[str, Any]) -> None:
        """Kill the slots that are stuck, so that anyone who waits for them goes on.

        `now` is by the monotonic clock, `runners` are Tune's actors by its names of the trials.
        """
        # A driver that was stopped by Ctrl-Z or a debugger has not yet read messages of slots.
        passed_s = min(now - (self._watched_at or now), _MOST_COUNTED_S)
        self._watched_at = now
        silent = {
            slot.index: why for slot in self._slots if (why := slot.silence(passed_s)) is not None
        }
        for slot in self._slots:
            self._recorder.say(slot.lines)
            slot.lines = []
        for trial_id, running in self.running.items():
            slot = self._slots[running.slot]
            running.watched_s += passed_s
            if running.stuck is None:
                running.stuck = silent.get(slot.index) or overdue(running, slot.settings)
                if running.stuck is not None:
                    running.killed_at_s = running.watched_s
                    ray.kill(slot.actor)
            elif (
                running.watched_s - running.killed_at_s >= _RUNNER_ANSWERS_S and trial_id in runners
            ):
                # It does not answer either; Tune asks another one.
                running.killed_at_s = running.watched_s
                ray.kill(runners[trial_id])
        for index in silent.keys() - {running.slot for running in self.running.values()}:
            self._slots[index] = self._slots[index].replaced()

    def close(self, say: Callable[[str], None]) -> dict[str, str]:
        """End all sessions in order; return the logs that became known.

        `say` is called with what went wrong.
        """
        return close_slots(self._slots, say)

    def stop(self) -> None:
        """End all sessions although trials run, and store their logs."""
        logs = stop_slots(self._slots, lambda line: self._recorder.say([line]))
        # Where the results can't be written to, the run has said so.
        with suppress(StorageError):
            self._recorder.store_logs(logs)
