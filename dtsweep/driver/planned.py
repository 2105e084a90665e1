"""A planned run: its options, the results that exist, and its recorder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from zlib import crc32

from dtsweep.cluster.node_account import NodeAccount
from dtsweep.driver.budget import Budget
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.run_writer import RunWriter
from dtsweep.errors import SweepError
from dtsweep.plan.batches import Batches
from dtsweep.plan.plan import Plan
from dtsweep.plan.prices import Prices
from dtsweep.plan.race import Race
from dtsweep.provenance.sources import Sources
from dtsweep.results.outbox import Outbox
from dtsweep.sweep.settings import Sweep


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command line that are not part of the sweep."""

    results: str
    address: str | None = None
    rerun: str | None = None
    node_timeout_s: float = 300.0
    in_process: bool = False
    max_hours: float | None = None
    """Hours after which the run ends; None: unlimited."""

    prices: Prices | None = None
    """Prices of nodes; None where nobody has given any."""

    max_cost_usd: float | None = None
    """USD of all runs of the results after which the run ends; None: unlimited."""

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

    earlier_usd: float = 0.0
    """Cost of earlier runs of the same results, as far as it is known."""

    @cached_property
    def budget(self) -> Budget:
        """Limits of time and money, and what is spent of them."""
        expected = self.plan.duration
        seconds = expected.middle_s if expected.measured else expected.low_s
        trials = max(1, len(self.plan.to_run))
        return Budget(
            elapsed_s=lambda: self.spent_s,
            first_trial_s=seconds * self.sweep.resources.concurrent / trials,
            max_hours=self.options.max_hours,
            max_cost_usd=self.options.max_cost_usd,
            earlier_usd=self.earlier_usd,
        )

    @property
    def spent_s(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    def take_account(self, account: NodeAccount) -> None:
        """Have the budget count what the nodes of the run cost.

        Raises:
            SweepError: there is a limit of cost, and nodes that are up have no price.
        """
        self.budget.account = account
        if self.options.max_cost_usd is not None and self.options.prices and account.unpriced:
            node_type = account.unpriced[0]
            raise SweepError(
                f"--max-cost can't be kept: node type {node_type!r} has no price; "
                f"{self.options.prices.how_to_add(node_type)}"
            )

    def record_of_nodes(self) -> dict[str, Any]:
        """Fields of the run's record on nodes and money."""
        account = self.budget.account
        if account is None:
            return {"max_cost_usd": self.options.max_cost_usd}
        # Of the trials that are left, if the nodes that are up measure them.
        per_hour, expected_usd = account.usd_per_hour_now, None
        left_s = self.progress.standing()["expected_left_s"]
        if per_hour is not None and left_s is not None:
            expected_usd = float(per_hour * left_s / 3600)
        return {
            **account.record(),
            "expected_left_usd": expected_usd,
            "max_cost_usd": self.options.max_cost_usd,
        }

    @property
    def known_devices(self) -> frozenset[str]:
        """Device models of the results that stay; empty is any."""
        if self.options.rerun == "all":
            return frozenset()
        measured = (row for row in self.plan.rows if row["status"] == "ok")
        return frozenset(row["devices"] for row in measured if row["devices"])

    def queue(self, sweep: Sweep, sources: Sources, *, slots: int = 1) -> Queue:
        """Make the queue, without trials, of a sweep whose resources are settled.

        Trainings are kept in a local results folder until they end, by the source of the workload.
        """
        root, checkpoints = self.outbox.local_root, None
        if root and sweep.training_goal:
            digest = crc32(repr(sorted(sources.digests.items())).encode())
            checkpoints = f"{root}/checkpoints/{digest}"
        rows = self.plan.rows
        if self.options.rerun == "all":
            rows = ()
        return Queue(
            sweep,
            slots=slots,
            peaks=self.plan.peaks,
            race=Race(sweep.training_goal, rows),
            checkpoints=checkpoints,
        )

    def recorder(self, sweep: Sweep) -> Recorder:
        """Make the recorder of a sweep whose resources are settled.

        It stores at once what is skipped.
        """
        numbers = [row["row_number"] or 0 for row in self.plan.rows]
        recorder = Recorder(
            sweep,
            self.outbox,
            self.progress,
            harness=self.options.harness,
            first_row=max(numbers, default=0) + 1,
        )
        recorder.store_skipped(self.plan)
        return recorder
