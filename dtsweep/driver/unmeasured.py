"""Attempts and points without a measurement, and what their rows say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dtsweep.metrics.rows import task_row
from dtsweep.plan.trial import Row, Rows, Trial
from dtsweep.secret import without_secrets
from dtsweep.sweep.axes import Candidate
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of, trial_name

INTERRUPTED = "interrupted; the next run measures it again"
"""Reason of an attempt that was under way when the run was asked to stop."""


@dataclass(frozen=True, kw_only=True)
class Unmeasured:
    """A trial that ended without a measurement."""

    trial: Trial
    status: str
    reason: str | None
    task: Task | None = None
    """The attempt; None for the first attempt at a trial that was never handed out."""

    started_at: datetime | None = None
    """Time at which it was handed out; None if it was not."""

    flags: Sequence[str] | None = None
    """Of the attempt that it shares the fate of; the run's are added. None stores no flags."""

    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns of its row that are not those of its point."""


def unmeasured_row(
    sweep: Sweep,
    unmeasured: Unmeasured,
    *,
    flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Make the row of `trials` of a trial that ended without a measurement."""
    trial = unmeasured.trial
    task = unmeasured.task or task_of(
        sweep, trial.point, repeat=trial.repeat, measure=trial.measure
    )
    reason = unmeasured.reason
    row = {
        **task_row(sweep, trial.point, task),
        **unmeasured.columns,
        "role": trial.role,
        "status": unmeasured.status,
        "reason": reason and without_secrets(reason, sweep.resources.environment),
        "started_at": unmeasured.started_at or datetime.now(UTC),
    }
    if unmeasured.flags is not None:
        row["flags"] = [*unmeasured.flags, *flags]
    return row


def status_and_reason(row: Row) -> tuple[str, str | None]:
    """The status and the reason of a row."""
    return row["status"], row["reason"]


def skipped_points(
    sweep: Sweep,
    skipped: Sequence[Candidate],
    rows: Rows,
) -> Iterator[Unmeasured]:
    """Yield the skipped points whose reason is not among the stored rows yet."""
    stored = {(row["trial_id"], row["reason"]) for row in rows if row["status"] == "skipped"}
    for candidate in skipped:
        trial_id = trial_name(sweep, candidate.point, repeat=1, **candidate.overrides)
        reason = without_secrets(str(candidate.reason), sweep.resources.environment)
        if (trial_id, reason) in stored:
            continue
        yield Unmeasured(
            trial=Trial(trial_id=trial_id, point=candidate.point, repeat=1, why="skipped"),
            status="skipped",
            reason=reason,
            task=replace(task_of(sweep, candidate.point), trial_id=trial_id),
            columns=candidate.overrides,
        )
