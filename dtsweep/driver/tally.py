"""Counts how the trials of a run ended, and what the command exits with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dtsweep.results.statuses import FINE


@dataclass(kw_only=True)
class RunTally:
    """Outcome of a run."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Trials of this run by status; an attempt that was followed by another counts no more."""

    signal_number: int | None = None
    storage_error: str | None = None
    cluster_error: str | None = None
    trials_left: int | None = None
    """Trials that were planned and not measured when the budget ended; None if it did not."""

    limit: str | None = None
    """Limit that ended the run, in words; None where none did."""

    next_step: str | None = None
    """Next step of the campaign after that, in words."""

    _last: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """Status of each trial's last attempt, by `trial_id`."""

    def count(self, trial_id: str, status: str) -> None:
        """Count how an attempt ended, in place of the trial's attempt before it.

        >>> tally = RunTally()
        >>> tally.count("a", "rank_died")
        >>> tally.count("a", "ok")
        >>> tally.statuses
        Counter({'ok': 1})
        """
        before = self._last.get(trial_id)
        if before is not None:
            self.statuses -= Counter([before])
        self._last[trial_id] = status
        self.statuses[status] += 1

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        if self.signal_number is not None:
            return 128 + self.signal_number
        if self.storage_error is not None:
            return 5
        if self.cluster_error is not None:
            return 4
        if self.trials_left is not None:
            # The next run goes on, whatever became of the trials of this one.
            return 3
        if self.statuses.keys() & {"no_nodes", "infeasible"}:
            return 4
        return 0 if self.statuses.keys() <= FINE else 1

    @property
    def ended_as(self) -> str:
        """End of the run in one word, as its record has it (`RunRecord.ended_as`)."""
        if self.signal_number is not None:
            return "interrupted"
        if self.storage_error is not None or self.cluster_error is not None:
            return "failed"
        if self.trials_left is not None:
            return "budget"
        return "done"
