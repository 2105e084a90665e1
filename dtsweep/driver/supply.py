"""Supply of a run's queue: batch after batch, while the policy asks for more and budget is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dtsweep.driver.planned import PlannedRun
from dtsweep.driver.queue import BatchLayout, Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.unmeasured import Unmeasured
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import Trial

_LayOut = Callable[[Plan], BatchLayout]
"""Lays the trials of a plan out where they run."""


class Supply:
    """Puts batches of trials into a queue."""

    def __init__(
        self, planned: PlannedRun, queue: Queue, recorder: Recorder, *, lay_out: _LayOut
    ) -> None:
        """Put the first batch into the queue, which has no trials yet."""
        self._planned = planned
        self._queue = queue
        self._recorder = recorder
        self._lay_out = lay_out
        self._add(planned.plan)

    @property
    def is_time_up(self) -> bool:
        """True if no further trial is expected to fit the budget."""
        # What is left was noted: the run ends, though nodes may have gone and cost less by now.
        is_noted = self._recorder.tally.trials_left is not None
        return is_noted or not self._planned.budget.has_room()

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
            plan = self._planned.batches.next(self._recorder.rows)
            self._recorder.store_skipped(plan)
            if not plan.to_run:
                self._planned.progress.end_rounds(plan)
                return False
            if self.is_time_up:
                self._note_left(len(plan.to_run))
                return False
            self._planned.progress.total += len(plan.to_run)
            self._add(plan)
        if self.is_time_up:
            self._end(self._queue.waiting)
            return False
        return True

    def note_cut(self, trials: Iterable[Trial]) -> None:
        """Note in the tally what is left where trials were cut at the limit of the budget."""
        self._end(self._queue.waiting + sum(not trial.is_canary for trial in trials))

    def _end(self, left: int) -> None:
        """Note how many trials are left at the end of the budget."""
        if not left:
            # Where a canary alone is left, the policy may ask for more.
            left = len(self._planned.batches.next(self._recorder.rows).to_run)
        self._note_left(left)

    def _note_left(self, left: int) -> None:
        if left:
            budget = self._planned.budget
            self._recorder.tally.trials_left = left
            self._recorder.tally.limit = budget.words()
            self._recorder.tally.next_step = budget.next_step()

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
        self._queue.extend(layout.groups, layout.canaries)
