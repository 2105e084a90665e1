"""Supply of a run's queue: batch after batch, until the policy asks for no more or time is up."""

from __future__ import annotations

from collections.abc import Callable

from dtsweep.driver.planned import PlannedRun
from dtsweep.driver.queue import Layout, Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.unmeasured import Unmeasured
from dtsweep.plan.plan import Plan

LayOut = Callable[[Plan], Layout]
"""Lays the trials of a plan out where they run."""


class Supply:
    """Puts batches of trials into a queue."""

    def __init__(
        self, planned: PlannedRun, queue: Queue, recorder: Recorder, *, lay_out: LayOut
    ) -> None:
        """Put the first batch into the queue, which has no trials yet."""
        self._planned = planned
        self._queue = queue
        self._recorder = recorder
        self._lay_out = lay_out
        self._add(planned.plan)

    @property
    def is_time_up(self) -> bool:
        """True if no trial may be handed out any more."""
        return self._planned.is_time_up

    def refill(self) -> bool:
        """Put the next batch into the queue if it is empty; called while nothing runs.

        Returns:
            False if nothing is to be handed out any more: the policy asks for no more trials, or
            time is up. What is left then is noted in the tally.
        """
        if self._recorder.tally.trials_left is not None:
            # Time is up: another plan would take the trials of the last one for handed out.
            return False
        while self._queue.is_empty:
            plan = self._planned.next_plan(self._recorder.rows)
            if not plan.to_run:
                return False
            if self.is_time_up:
                self._recorder.tally.trials_left = len(plan.to_run)
                return False
            self._planned.progress.total += len(plan.to_run)
            self._add(plan)
        if self.is_time_up:
            # Where a canary alone is left, the policy may ask for more.
            left = self._queue.waiting
            if not left:
                left = len(self._planned.next_plan(self._recorder.rows).to_run)
            self._recorder.tally.trials_left = left or None
            return False
        return True

    def _add(self, plan: Plan) -> None:
        """Lay a plan out, and have its trials handed out; those that don't fit are stored."""
        layout = self._lay_out(plan)
        self._recorder.flags = layout.flags
        self._planned.progress.begin_round(plan)
        refused = [
            Unmeasured(trial=trial, status="infeasible", reason=reason)
            for trial, reason in layout.refused
        ]
        self._recorder.store_unmeasured(refused, rows=plan.rows)
        self._queue.extend(layout.groups, layout.canaries, pace=layout.pace)
