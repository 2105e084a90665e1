"""Turns each finished attempt into rows, stores them, and keeps the tally of the run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dtsweep.driver.canary_levels import CanaryLevels
from dtsweep.driver.progress import Progress
from dtsweep.driver.tally import RunTally
from dtsweep.driver.unmeasured import Unmeasured, skipped_points, status_and_reason, unmeasured_row
from dtsweep.errors import StorageError, error_line
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.charge import NO_CHARGE, Charge
from dtsweep.metrics.rows import (
    curve_rows,
    rank_rows,
    step_columns,
    task_row,
    trial_row,
    with_warmup_marked,
)
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import Row, Rows, Trial
from dtsweep.provenance.revision import git_commit
from dtsweep.provenance.sources import sources_of
from dtsweep.results.outbox import Outbox
from dtsweep.results.pack import as_read, attempt_files, log_file, unmeasured_files
from dtsweep.results.statuses import is_retried
from dtsweep.secret import print_traceback, without_secrets
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task
from dtsweep.sweep.values import column_types

ROWS_PER_FILE = 10_000
"""Rows of trials that were not run are stored so many at a time."""


class Recorder:
    """Makes the rows of each attempt that ended, and stores them."""

    def __init__(
        self,
        sweep: Sweep,
        outbox: Outbox,
        progress: Progress,
        *,
        harness: str = "ray",
        flags: Sequence[str] = (),
        first_row: int = 1,
    ) -> None:
        self.tally = RunTally()
        self.flags = flags
        self.rows: list[Row] = []
        """Rows that were stored so far with all columns, if the sweep has a question."""
        self._sweep = sweep
        self._outbox = outbox
        self._row_numbers = itertools.count(first_row)
        self._progress = progress
        self._types = column_types(sweep.workload)
        self._canaries = CanaryLevels()
        folder = None
        if sweep.file:
            folder = sweep.file.parent
        self._harness = harness
        self.sources = sources_of(sweep.workload, file=sweep.file)
        """Of the workload."""
        self._run_columns = {"git_commit": git_commit(folder), "harness": harness}

    def began(self, trial: Trial) -> None:
        """Tell the progress that an attempt was handed out."""
        self._progress.began(trial.trial_id, trial.point, is_canary=trial.is_canary)

    def say(self, lines: Iterable[str]) -> None:
        """Print lines for the user."""
        for line in lines:
            self._progress.say(self._open(line))

    def store(
        self,
        trial: Trial,
        task: Task,
        result: AttemptResult,
        *,
        started_at: datetime,
        wall_s: float | None = None,
        charge: Charge = NO_CHARGE,
    ) -> str:
        """Store an attempt; return its status."""
        try:
            row, tables = self._rows_of(trial, task, result)
            row |= {
                "started_at": started_at,
                **(_times(result, wall_s) if wall_s is not None else {}),
            }
            row |= charge.columns(row)
            # First what was measured: where storage fails, it is kept elsewhere.
            self._commit(row, **tables)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  # no number, whatever it is, may cost the trials that follow
            row = self._store_raw(trial, task, result, started_at=started_at, error=error)
        self._note(trial, row)
        self.say(result.notes)
        self.store_logs(result.logs)
        self._outbox.compact_if_scattered()
        return str(row["status"])

    def _rows_of(
        self, trial: Trial, task: Task, result: AttemptResult
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The row of an attempt, and its ranks and steps."""
        results = with_warmup_marked(trial.point, result.results)
        row = {
            **trial_row(
                self._sweep, trial.point, task, result.facts, results, harness=self._harness
            ),
            # The slot's: it also knows of ranks that did not answer.
            "status": result.status,
            "reason": result.reason,
            "session": result.session,
            "session_workers": result.session_workers,
        }
        ranks = rank_rows(result.facts, results)
        for rank in ranks:
            rank["shards_hosted"] = list(result.shard_nodes).count(rank["rank"])
            if rank["log"] is not None:
                rank["log"] = _log_of(result, task, int(Path(rank["log"]).stem))
        has_logs = any(rank["log"] is not None for rank in ranks)
        row["log"] = _log_of(result, task, result.explained_by) if has_logs else None
        row["concurrent_trials"] = result.concurrent_trials
        if "turn_samples_per_s" in row:
            row["turn_group"] = result.turn_group
        flags = [*row.get("flags", ()), *result.flags, *self.flags]
        if task.is_canary and row["status"] == "ok":
            drifts = self._canaries.add(row)
            flags += ["canary_drift"] if drifts else []
        return {**row, "flags": flags}, {
            "ranks": ranks,
            "steps": step_columns(results),
            "curves": curve_rows(results),
        }

    def _store_raw(
        self,
        trial: Trial,
        task: Task,
        result: AttemptResult,
        *,
        started_at: datetime,
        error: Exception,
    ) -> dict[str, Any]:
        """Store an attempt whose row can't be stored: the reason, and its steps where possible."""
        print_traceback(error)
        reason = f"its numbers can't be stored ({error_line(error)}); measured as {result.status}"
        row = {
            **task_row(self._sweep, trial.point, task),
            "role": trial.role,
            "status": "storage",
            "reason": reason,
            "started_at": started_at,
            "session": result.session,
        }
        try:
            self._commit(row, steps=step_columns(result.results))
        except (ArithmeticError, LookupError, TypeError, ValueError) as steps_error:
            row["reason"] = f"{reason}; nor can its steps ({error_line(steps_error)})"
            self._commit(row)
        return row

    def store_skipped(self, plan: Plan) -> None:
        """Store the points that a plan skips, each reason once; they don't count."""
        skipped = skipped_points(self._sweep, plan.skipped, plan.rows)
        self.store_unmeasured(skipped, is_counted=False)

    def store_pruned(self, pruned: Iterable[tuple[Trial, str]]) -> None:
        """Store trials that would run out of memory, each with its reason."""
        self.store_unmeasured(
            Unmeasured(trial=trial, status="skipped", reason=reason) for trial, reason in pruned
        )

    def store_unmeasured(
        self,
        unmeasured: Iterable[Unmeasured],
        *,
        rows: Rows = (),
        is_counted: bool = True,
    ) -> None:
        """Store trials that ended without a measurement, many rows to a file, and count them.

        Args:
            unmeasured: one for each trial.
            rows: stored ones, the oldest first; a trial is not stored again if its newest row has
                the same status and reason.
            is_counted: False for points that are no trials of this run.
        """
        newest = {row["trial_id"]: status_and_reason(row) for row in rows}
        waiting = iter(unmeasured)
        while batch := list(itertools.islice(waiting, ROWS_PER_FILE)):
            made_rows = [
                (entry, unmeasured_row(self._sweep, entry, flags=self.flags)) for entry in batch
            ]
            new = [
                (entry, row)
                for entry, row in made_rows
                if newest.get(row["trial_id"]) != status_and_reason(row)
            ]
            never_begun = [
                self._with_run_columns(row) for entry, row in new if entry.started_at is None
            ]
            if never_begun:
                self._outbox.put(unmeasured_files(never_begun, workload_types=self._types))
                self._keep(never_begun)
            for entry, row in new:
                # An attempt that had begun is kept elsewhere if the results can't be written.
                if entry.started_at is not None:
                    self._commit(row)
            if is_counted:
                for entry, row in made_rows:
                    self._note(entry.trial, row)

    def store_logs(self, logs: Mapping[str, str]) -> None:
        """Store parts of ranks' logs, by name."""
        for name, text in logs.items():
            self._outbox.put_extra(f"the log {name}", [log_file(name, self._open(text))])

    def _open(self, text: str) -> str:
        """Text without secrets, those of the workers' environment among them."""
        return without_secrets(text, self._sweep.resources.environment)

    def _with_open_reasons(self, row: Row) -> dict[str, Any]:
        """The row without secrets in what a rank, a library or the user's code has worded."""
        reasons = {name: row[name] for name in row if name.endswith("reason")}
        texts = {name: text for name, text in reasons.items() if isinstance(text, str)}
        return {**row, **{name: self._open(text) for name, text in texts.items()}}

    def _commit(self, row: Row, **tables: Any) -> None:
        row = self._with_run_columns(row)
        self._outbox.put(attempt_files(row, workload_types=self._types, **tables))
        self._keep([row])

    def _keep(self, rows: Rows) -> None:
        """Keep rows as they are read from the results, for the plan of the next round."""
        if self._sweep.question is not None:
            self.rows += as_read(rows, workload_types=self._types)

    def _with_run_columns(self, row: Row) -> dict[str, Any]:
        """A row as it is stored: every row passes here."""
        return {
            "role": "trial",
            "row_number": next(self._row_numbers),
            **self._with_open_reasons(row),
            **self.sources.columns(row),
            **self._run_columns,
        }

    def _note(self, trial: Trial, row: Row) -> None:
        row = self._with_open_reasons(row)
        self._progress.over(trial.trial_id)
        if trial.is_canary:
            # It is no answer to the question: it counts neither as done nor as failed.
            self._progress.canary(trial.point, row)
            return
        self.tally.count(trial.trial_id, row["status"])
        self._progress.ended(
            trial.point, row, again=is_retried(row["status"], attempt=row["attempt"])
        )


def _log_of(result: AttemptResult, task: Task, process: int) -> str:
    """Path of the log of a process: of the attempt where it is kept apart, else of the session."""
    own = f"{result.session}/{task.log_of(process)}"
    if own in result.logs:
        return f"logs/{own}.log"
    return f"logs/{result.session}/{process}.log"


def _times(result: AttemptResult, wall_s: float) -> dict[str, float | None]:
    overhead_s = wall_s - (result.startup_s or 0.0) - (result.trial_s or 0.0)
    return {
        "startup_s": result.startup_s,
        "trial_s": result.trial_s,
        "overhead_s": max(0.0, overhead_s),
        "nodes_wait_s": result.nodes_wait_s,
    }
