"""State of a campaign: all runs on one place of results, by their records and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtsweep.results.lease import LiveRun, holder
from dtsweep.results.overview import Overview, overview_of
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
class Campaign:
    """All runs on one place of results."""

    state: str
    live: LiveRun | None
    run: StoredRun | None
    """The run that lives, else the last one; None without its record."""

    runs: int
    """Runs with a record."""

    trials: RunTrials | None
    """Of `run`."""

    running: Sequence[RunningTrial]
    """Attempts under way."""

    run_s: float | None
    """Time of `run` so far."""

    time_s: float | None
    """Time of all runs so far."""

    left_s: float | None
    """Time that the rest of a live run should take; None is unknown."""

    cost_usd: float | None
    """Cost of all runs so far, as far as it is known."""

    runs_without_cost: int
    left_usd: float | None
    node_s: Mapping[str, float]
    """Node-seconds of all runs, by node type; empty where none was counted."""

    overview: Overview
    """Rows of all runs."""

    @property
    def record(self) -> RunRecord | None:
        """Record of `run`."""
        if self.run is None:
            return None
        return self.run.record

    @property
    def is_under_way(self) -> bool:
        """True if a run lives."""
        return self.live is not None

    @property
    def is_empty(self) -> bool:
        """True if nothing was stored, and no run lives."""
        return self.live is None and self.runs == 0 and not self.overview.statuses


def read_campaign(where: str | Path, *, last: int = 5) -> Campaign:
    """Read how a campaign stands; from any machine, while it runs or afterwards.

    Args:
        where: the place.
        last: most attempts to list.

    Raises:
        StorageError: the place can't be read.
    """
    return campaign_in(Results(where), last=last)


def campaign_in(store: Results, *, last: int) -> Campaign:
    """Read how the campaign of opened results stands, as `read_campaign` does."""
    # The lease first: a run that ends meanwhile has stored its record before it gives it back.
    live, runs = holder(store.storage), store.run_records()
    campaign = campaign_of(live, runs, overview_of(store, last=last))
    if campaign.state == KILLED and (live := holder(store.storage)) is not None:
        # It began between the two looks.
        return campaign_of(live, runs, campaign.overview)
    return campaign


def campaign_of(live: LiveRun | None, runs: Sequence[StoredRun], overview: Overview) -> Campaign:
    """Combine what is known of a campaign."""
    run = _run_shown(live, runs)
    state = _state(live, run)
    spent = {stored.record.run_id: _spent_s(stored, live) for stored in runs}
    costs = [cost for stored in runs if (cost := stored.record.cost_usd) is not None]
    trials = run_s = left_s = left_usd = None
    running: Sequence[RunningTrial] = ()
    if run is not None:
        if state == RUNNING:
            running = run.record.running
            left_s = run.record.expected_left_s
            left_usd = run.record.expected_left_usd
        trials = _trials_of(run.record, running=sum(not trial.is_canary for trial in running))
        run_s = spent[run.record.run_id]
    if left_s is not None and run is not None:
        left_s = max(0.0, left_s - run.age_s)
    return Campaign(
        state=state,
        live=live,
        run=run,
        runs=len(runs),
        trials=trials,
        running=running,
        run_s=run_s,
        time_s=sum(spent.values()) if spent else None,
        left_s=left_s,
        cost_usd=sum(costs) if costs else None,
        runs_without_cost=len(runs) - len(costs),
        left_usd=left_usd,
        node_s=_node_s(runs),
        overview=overview,
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


def _node_s(runs: Sequence[StoredRun]) -> dict[str, float]:
    """Node-seconds of all runs by node type."""
    by_type = Counter[str]()
    for run in runs:
        by_type.update(run.record.node_s or {})
    return dict(by_type)
