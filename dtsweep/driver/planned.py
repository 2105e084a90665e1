"""A planned run: its options, the results that exist, and its recorder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dtsweep.driver.progress import Progress
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.run_writer import RunWriter
from dtsweep.driver.unmeasured import skipped_points
from dtsweep.plan.batches import Batches
from dtsweep.plan.plan import Plan
from dtsweep.plan.policy import Rows, Spent
from dtsweep.results.outbox import Outbox
from dtsweep.sweep.settings import Sweep


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command line that are not part of the sweep."""

    results: str
    address: str | None = None
    rerun: str | None = None
    node_timeout_s: float = 300.0
    profile: bool = False
    in_process: bool = False
    max_hours: float | None = None
    """Hours after which no trial is handed out any more; None is no limit."""

    @property
    def harness(self) -> str:
        """Launcher of the ranks: column `harness`."""
        if self.in_process:
            return "in_process"
        return "ray"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A plan that is about to be carried out, on Ray or in this process."""

    sweep: Sweep
    plan: Plan
    """First plan of the run."""

    batches: Batches
    """Made that plan, and makes the following ones."""

    outbox: Outbox
    """On the way to the results."""

    progress: Progress
    options: Options
    record: RunWriter | None = None
    """Writes the record of the run; None where none is kept."""

    clock: Callable[[], float] = time.monotonic
    """Clock of `began`, in seconds."""

    began: float = field(default_factory=time.monotonic)
    """Time at which the run began."""

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    @property
    def is_time_up(self) -> bool:
        """True if no trial may be handed out any more."""
        hours = self.options.max_hours
        return hours is not None and self.spent_s >= hours * 3600

    def next_plan(self, rows: Rows) -> Plan:
        """Plan the next batch, by what this run has recorded; it is empty where none follows."""
        return self.batches.next(rows, spent=Spent(seconds=self.spent_s))

    @property
    def known_devices(self) -> frozenset[str]:
        """Device models of the results that stay; empty is any."""
        if self.options.rerun == "all":
            return frozenset()
        measured = (row for row in self.plan.rows if row["status"] == "ok")
        return frozenset(row["devices"] for row in measured if row["devices"])

    def recorder(self, sweep: Sweep, flags: Sequence[str] = ()) -> Recorder:
        """Make the recorder of a sweep whose resources are settled.

        It stores at once what is skipped.
        """
        numbers = [row["row_number"] or 0 for row in self.plan.rows]
        recorder = Recorder(
            sweep,
            self.outbox,
            self.progress,
            harness=self.options.harness,
            flags=flags,
            first_row=max(numbers, default=0) + 1,
        )
        skipped = skipped_points(sweep, self.plan.skipped, self.plan.rows)
        recorder.store_unmeasured(skipped, is_counted=False)
        return recorder
