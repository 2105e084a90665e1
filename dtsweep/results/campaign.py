"""State of a campaign: all runs on one place of results, by their records and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtsweep.results.current_attempt import CHOOSING, current_attempts
from dtsweep.results.lease import LiveRun, holder
from dtsweep.results.run_record import RunningTrial, RunRecord, StoredRun
from dtsweep.results.statuses import CUT, FINE
from dtsweep.results.store import Results

STARTING, RUNNING, ENDING, ENDED, KILLED, UNKNOWN = (
    "starting",
    "running",
    "ending",
    "ended",
    "killed",
    "unknown",
)
"""States of a campaign.

`starting` has no record yet, `ending` stores its last rows, `killed` gave no word of its end, and
`unknown` has rows only.
"""


@dataclass(frozen=True, kw_only=True)
class RunTrials:
    """Trials of one run."""

    total: int
    """Planned so far, later rounds not included."""

    done: int
    failed: int
    running: int
    left: int
    """Neither ended nor running; those that the end of the run has cut are left, too."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Trials that have failed in one way."""

    status: str
    trials: int
    reason: str | None
    """Reason of the newest of them."""

    log: str | None
    """File of its log, in the results."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """All runs on one place of results."""

    state: str
    live: LiveRun | None
    record: RunRecord | None
    """The run that lives, else the last one; None without its record."""

    record_age_s: float | None
    """Seconds since `record` was written."""

    runs: int
    """Runs with a record."""

    trials: RunTrials | None
    """Of `record`."""

    running: Sequence[RunningTrial]
    """Attempts under way."""

    run_s: float | None
    """Time of the run of `record` so far."""

    time_s: float | None
    """Time of all runs so far."""

    expected_left_s: float | None
    """Time that the rest of a live run should take; None is unknown."""

    cost_usd: float | None
    """Cost of all runs so far, as far as it is known."""

    runs_without_cost: int
    expected_left_usd: float | None
    node_s: Mapping[str, float]
    """Node-seconds of all runs, by node type; empty where none was counted."""

    statuses: Mapping[str, int]
    """Trials of all runs by the status of the attempt that stands for each, without canaries."""

    failures: Sequence[Failure]
    """The most frequent first."""

    @property
    def is_under_way(self) -> bool:
        """True if a run lives."""
        return self.live is not None

    @property
    def is_empty(self) -> bool:
        """True if nothing was stored, and no run lives."""
        return self.live is None and self.runs == 0 and not self.statuses


def read_campaign(where: str | Path) -> Campaign:
    """Read how a campaign stands; from any machine, while it runs or afterwards.

    Raises:
        StorageError: the place can't be read.
    """
    return campaign_in(Results(where))


def campaign_in(store: Results) -> Campaign:
    """Read how the campaign of opened results stands, as `read_campaign` does."""
    # The lease first: a run that ends meanwhile has stored its record before it gives it back.
    live, runs = holder(store.storage), store.run_records()
    rows = store.attempts({*CHOOSING, "reason", "log"})
    campaign = campaign_of(live, runs, rows)
    if campaign.state == KILLED and (live := holder(store.storage)) is not None:
        # It began between the two looks.
        return campaign_of(live, runs, rows)
    return campaign


def campaign_of(
    live: LiveRun | None, runs: Sequence[StoredRun], rows: Sequence[Mapping[str, Any]]
) -> Campaign:
    """Combine what is known of a campaign.

    Args:
        live: the run that holds the lease.
        runs: records, the oldest first.
        rows: attempts, the oldest first.
    """
    run = _run_shown(live, runs)
    state = _state(live, run)
    spent = {stored.record.run_id: _spent_s(stored, live) for stored in runs}
    costs = [cost for stored in runs if (cost := stored.record.cost_usd) is not None]
    node_s = Counter[str]()
    for stored in runs:
        node_s.update(stored.record.node_s or {})
    trials = run_s = left_s = left_usd = None
    running: Sequence[RunningTrial] = ()
    if run is not None:
        if state == RUNNING:
            running = run.record.running
            left_usd = run.record.expected_left_usd
            if run.record.expected_left_s is not None:
                left_s = max(0.0, run.record.expected_left_s - run.age_s)
        trials = _trials_of(run.record, running=sum(not trial.is_canary for trial in running))
        run_s = spent[run.record.run_id]
    current = [rows[index] for index in sorted(current_attempts(rows).values())]
    statuses = dict(Counter(row["status"] for row in current).most_common())
    newest = {row["status"]: row for row in current}
    return Campaign(
        state=state,
        live=live,
        record=run and run.record,
        record_age_s=run and run.age_s,
        runs=len(runs),
        trials=trials,
        running=running,
        run_s=run_s,
        time_s=sum(spent.values()) if spent else None,
        expected_left_s=left_s,
        cost_usd=sum(costs) if costs else None,
        runs_without_cost=len(runs) - len(costs),
        expected_left_usd=left_usd,
        node_s=dict(node_s),
        statuses=statuses,
        failures=[
            Failure(
                status=status,
                trials=count,
                reason=newest[status].get("reason"),
                log=newest[status].get("log"),
            )
            for status, count in statuses.items()
            if status not in FINE | CUT
        ],
    )


def _run_shown(live: LiveRun | None, runs: Sequence[StoredRun]) -> StoredRun | None:
    if live is not None:
        return next((run for run in runs if run.record.run_id == live.run_id), None)
    if runs:
        return runs[-1]
    return None


def _state(live: LiveRun | None, run: StoredRun | None) -> str:
    if run is None:
        if live is None:
            return UNKNOWN
        return STARTING
    has_ended = run.record.ended_at is not None
    if live is None:
        if has_ended:
            return ENDED
        return KILLED
    if has_ended:
        return ENDING
    return RUNNING


def _spent_s(run: StoredRun, live: LiveRun | None) -> float:
    """Time of a run so far; of one that was killed until its last record."""
    record = run.record
    if record.ended_at is not None:
        return max(0.0, record.ended_at - record.started_at)
    seconds = record.updated_at - record.started_at
    if live is not None and live.run_id == record.run_id:
        # By the age of the file: clocks of machines differ.
        seconds += max(0.0, run.age_s)
    return max(0.0, seconds)


def _trials_of(record: RunRecord, *, running: int) -> RunTrials:
    statuses = record.statuses
    done = sum(count for status, count in statuses.items() if status in FINE)
    failed = sum(count for status, count in statuses.items() if status not in FINE | CUT)
    return RunTrials(
        total=record.total,
        done=done,
        failed=failed,
        running=running,
        left=max(0, record.total - done - failed - running),
    )
