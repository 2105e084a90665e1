"""State of a campaign, by the lease, the records of its runs, and their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtsweep.analysis.campaign import Campaign, RunTrials, campaign_of
from dtsweep.results.lease import LiveRun
from dtsweep.results.overview import Overview
from dtsweep.results.run_record import RunningTrial, RunRecord, StoredRun

NOTHING = Overview(statuses={}, failures=(), last=())

LIVE = LiveRun(run_id="b", host="head", pid=7, since="2026-01-01", silent_s=4.0)


def run(run_id: str, *, age_s: float = 2.0, **fields: Any) -> StoredRun:
    record = RunRecord(
        run_id=run_id, sweep="s", host="head", pid=7, started_at=100.0, updated_at=160.0, total=10
    )
    return StoredRun(replace(record, **fields), age_s)


def ended(run_id: str, **fields: Any) -> StoredRun:
    return run(run_id, **{"ended_at": 190.0, "ended_as": "done", **fields})


def seen(*runs: StoredRun, live: LiveRun | None = None, overview: Overview = NOTHING) -> Campaign:
    return campaign_of(live, runs, overview)


@pytest.mark.parametrize(
    ("live", "runs", "state"),
    [
        (None, [], "unknown"),
        (LIVE, [], "starting"),
        (LIVE, [ended("a")], "starting"),
        (LIVE, [ended("a"), run("b")], "running"),
        (LIVE, [ended("a"), ended("b")], "ending"),
        (None, [ended("a"), ended("b")], "ended"),
        (None, [ended("a"), run("b")], "killed"),
        (None, [run("a"), ended("b")], "ended"),
    ],
)
def test_the_lease_and_the_last_record_say_the_state(
    live: LiveRun | None, runs: list[StoredRun], state: str
) -> None:
    assert seen(*runs, live=live).state == state


def test_trials_that_ran_when_their_run_was_killed_are_left() -> None:
    running = (
        RunningTrial(trial_id="x", name="workers=1", since=150.0),
        RunningTrial(trial_id="y", name="workers=1", since=150.0, is_canary=True),
    )
    statuses = {"ok": 3, "oom_device": 1, "hang": 2, "cancelled": 1}
    stored = run("b", running=running, statuses=statuses)
    alive = seen(stored, live=LIVE)
    # A canary is not among the trials that are counted.
    assert alive.trials == RunTrials(total=10, done=4, failed=2, running=1, left=3)
    assert alive.running == running
    killed = seen(stored)
    assert killed.trials == RunTrials(total=10, done=4, failed=2, running=0, left=4)
    assert killed.running == ()


def test_times_of_all_runs_add_up_and_of_a_killed_one_its_last_record_counts() -> None:
    killed = run("a", age_s=10_000.0)
    # 60 s to its last record; 90 s to its end; 60 s and the 2 s since then.
    campaign = seen(killed, ended("c"), run("b"), live=LIVE)
    assert campaign.time_s == 60.0 + 90.0 + 62.0
    assert campaign.run_s == 62.0


def test_what_is_left_counts_down_between_two_records_and_is_unknown_without_a_run() -> None:
    stored = run("b", expected_left_s=30.0, expected_left_usd=1.5)
    campaign = seen(stored, live=LIVE)
    assert (campaign.left_s, campaign.left_usd) == (28.0, 1.5)
    assert seen(StoredRun(stored.record, 60.0), live=LIVE).left_s == 0.0
    assert (seen(stored).left_s, seen(stored).left_usd) == (None, None)


def test_costs_add_up_as_far_as_they_are_known() -> None:
    campaign = seen(ended("a", cost_usd=1.0), ended("b"), ended("c", cost_usd=0.5))
    assert (campaign.cost_usd, campaign.runs_without_cost) == (1.5, 1)
    assert seen(ended("a")).cost_usd is None


def test_node_seconds_add_up_by_type() -> None:
    campaign = seen(
        ended("a", node_s={"gpu": 11.0}),
        ended("b", node_s={"gpu": 5.0, "cpu": 2.0}),
        ended("c"),
    )
    assert campaign.node_s == {"gpu": 16.0, "cpu": 2.0}
