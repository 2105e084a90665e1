"""Stores what a run brings: rows of every attempt, logs of its ranks; and counts how trials ended."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from dtsweep.errors import StorageError, SweepError
from dtsweep.metrics.rows import rank_rows, settled, step_columns, trial_row
from dtsweep.plan.plan import CANARY_DRIFT, Trial
from dtsweep.provenance import git_commit, workload_digest
from dtsweep.report.progress import Progress
from dtsweep.results.statuses import is_retried
from dtsweep.results.store import Results
from dtsweep.sweep.point import Point, column_types, identity
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, point_row, task_of

if TYPE_CHECKING:
    from dtsweep.session.lane import AttemptResult

FINE = frozenset({"ok", "skipped", "oom_device"})
"""How trials may end without the command saying that something is wrong."""


@dataclass(kw_only=True)
class RunTally:
    """How a run went."""

    statuses: Counter[str] = field(default_factory=Counter)
    """Trials of this run by status; an attempt that was followed by another counts no more."""

    signal_number: int | None = None
    storage_error: str | None = None

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        if self.signal_number is not None:
            return 128 + self.signal_number
        if self.storage_error is not None:
            return 5
        if self.statuses.keys() & {"no_nodes", "infeasible"}:
            return 4
        return 0 if self.statuses.keys() <= FINE else 1


class Recorder:
    """Makes the rows of each attempt that ended, and stores them."""

    def __init__(self, sweep: Sweep, results: Results, *, known: set[str]) -> None:
        """Keep what rows are made of.

        Args:
            sweep: its resources may be settled later, before the first row is stored.
            results: where rows go.
            known: device models of the rows that are there already; another one is refused.
        """
        self.sweep, self.results, self.tally = sweep, results, RunTally()
        self.progress = Progress(axes=sweep.axes)
        self._known, self._types = known, column_types(sweep.workload)
        self.flags: tuple[str, ...] = ()
        self._last: dict[str, str] = {}
        self._measured: dict[str, list[tuple[str, float, float]]] = {}
        self._canaries: dict[str, list[float]] = {}
        folder = sweep.file.parent if sweep.file else None
        self._same = {
            "workload_digest": workload_digest(sweep.workload, folder=folder),
            "git_commit": git_commit(folder),
        }

    def __call__(self, trial: Trial, task: Task, result: AttemptResult, times: Mapping[str, Any]) -> str:
        """Store an attempt; return its status."""
        ended = {"status": result.status, "reason": result.reason, **times}
        outcomes = settled(self.sweep, task, result.outcomes)
        row = {**trial_row(self.sweep, task, outcomes), **ended}
        if self._known and row.get("devices") and row["devices"] not in self._known:
            raise SweepError(
                f"these results were measured on {', '.join(sorted(self._known))}, this run is on {row['devices']}; "
                "measure all anew with --rerun all, or keep both with another --results"
            )
        ranks = rank_rows(outcomes)
        if result.session:
            row |= {"session": result.session, "log": f"logs/{result.session}/{result.failed_rank}.log"}
            for rank in ranks:
                rank["log"] = f"logs/{result.session}/{rank['rank']}.log"
                rank["shards_hosted"] = list(result.shard_nodes).count(rank["rank"])
        row["flags"] = [*row.get("flags", ()), *result.flags, *self.flags, *self._canary_flags(trial, row)]
        # First what was measured: where storage fails, it is kept elsewhere.
        self._commit(row, ranks=ranks, steps=step_columns(outcomes))
        self._note(trial, row)
        self.keep_logs(result.logs)
        self._keep_profiles(task, result)
        return result.status

    def rivals(self, point: Point) -> tuple[tuple[float, float], ...]:
        """Latency and throughput of what this run has measured with a point's semantics; not of its own launches."""
        measured, own = self._measured.get(point.semantics, ()), identity(point)
        return tuple((latency, rate) for name, latency, rate in measured if name != own)

    def _canary_flags(self, trial: Trial, row: Mapping[str, Any]) -> list[str]:
        """Compare a canary with the earlier ones of its world in this run, by their median."""
        if row["role"] != "canary" or row["status"] != "ok":
            return []
        others = self._canaries.setdefault(identity(trial.point), [])
        drifts = bool(others) and abs(row["step_mean_s"] / median(others) - 1) > CANARY_DRIFT
        others.append(row["step_mean_s"])
        return ["canary_drift"] * drifts

    def skips(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store the rows of skipped points."""
        for row in rows:
            now = {"attempt_id": uuid.uuid4().hex, "started_at": datetime.now(UTC), "repeat": 1, "attempt": 1}
            self._commit({**row, **now})

    def refuses(self, trial: Trial, reason: str | None) -> bool:
        """Store a trial as `infeasible` if there is a reason; say whether there was."""
        if reason is not None:
            self._without_run(trial, task_of(self.sweep, trial.point, repeat=trial.repeat), "infeasible", reason)
        return reason is not None

    def cancelled(self, trial: Trial, task: Task, started_at: datetime) -> None:
        """Store that an attempt was interrupted."""
        self._without_run(trial, task, "cancelled", "interrupted; the same command measures it again", started_at)

    def keep_logs(self, logs: Mapping[str, str]) -> None:
        """Store the ends of ranks' logs, by `<session>/<rank>`."""
        for name, text in logs.items():
            self.results.write_log(name, text)

    def _keep_profiles(self, task: Task, result: AttemptResult) -> None:
        for rank, outcome in result.outcomes.items():
            if why := outcome.get("no_profile"):
                self.progress.say(f"no profile of rank {rank}: {why}")
            if profile := outcome.get("profile"):
                name = f"{result.session}/{task.trial_id}-{rank}"
                where = self.results.write_profile(name, **profile)
                if rank == 0:
                    self.progress.say(f"profile: {where}")

    def _without_run(
        self, trial: Trial, task: Task, status: str, reason: str, started_at: datetime | None = None
    ) -> None:
        row = {
            **point_row(self.sweep, trial.point),
            **{name: getattr(task, name) for name in ("attempt_id", "trial_id", "repeat", "attempt")},
            "role": trial.role,
            "status": status,
            "reason": reason,
            "started_at": started_at or datetime.now(UTC),
        }
        self._commit(row)
        self._note(trial, row)

    def _commit(self, row: Mapping[str, Any], **tables: Any) -> None:
        row = {"role": "trial", **row, **self._same}
        try:
            self.results.commit(row, workload_types=self._types, **tables)
        except StorageError as error:
            # The measurement is paid for: keep it where it can be copied from.
            spool = tempfile.mkdtemp(prefix="dtsweep-unsaved-")
            Results(spool).commit(row, workload_types=self._types, **tables)
            raise StorageError(
                f"{error}; the last trial is safe in {spool}: copy its folders into {self.results}"
            ) from error

    def _note(self, trial: Trial, row: Mapping[str, Any]) -> None:
        if row.get("role") == "canary":
            # It is no answer to the question: it counts neither as done nor as failed.
            self.progress.canary(trial.point, row)
            return
        if row["status"] == "ok":
            latency = row["step_mean_s" if row["semantics"] == "local" else "step_p50_s"]
            self._measured.setdefault(row["semantics"], []).append((row["point_id"], latency, row["samples_per_s"]))
        before = self._last.get(trial.trial_id)
        if before is not None:
            self.tally.statuses -= Counter([before])
        self._last[trial.trial_id] = row["status"]
        self.tally.statuses[row["status"]] += 1
        self.progress.ended(trial.point, row, again=is_retried(row["status"], attempt=row["attempt"]))
