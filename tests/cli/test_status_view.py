"""State of a campaign in words, at the widths of terminals, and as JSON values."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dtsweep.cli.status_view import print_status, status_json
from dtsweep.results.campaign import Campaign, Failure, RunTrials, campaign_of
from dtsweep.results.lease import LiveRun
from dtsweep.results.run_record import RunningTrial, RunRecord, StoredRun

NOW = 1_750_000_000.0

POINT = "workers=16 micro_batch=64 accumulation=4 sync=hsdp node_size=8 precision=bf16"

RECORD = RunRecord(
    run_id="b",
    sweep="batchsize",
    host="ip-10-0-12-34.eu-central-1.compute.internal",
    pid=4711,
    started_at=NOW - 2400.0,
    updated_at=NOW - 3.0,
    total=60,
    statuses={"ok": 36, "oom_device": 4, "node_lost": 2},
    running=(
        RunningTrial(trial_id="r", name=POINT, since=NOW - 75.0),
        RunningTrial(trial_id="c", name="workers=2", since=NOW - 5.0, is_canary=True),
    ),
    expected_left_s=723.0,
    max_hours=2.0,
    max_cost_usd=4.0,
    node_s={"g5.12xlarge:spot": 12700.0, "head": 2400.0},
    cost_usd=1.24,
    expected_left_usd=0.41,
)

LIVE = LiveRun(run_id="b", host=RECORD.host, pid=4711, since="2025-06-15", silent_s=4.0)

ENDS = {"ok": 70, "oom_device": 4, "skipped": 3, "node_lost": 2}


def attempt(trial_id: str, status: str, **values: Any) -> dict[str, Any]:
    """A row of `trials`, as far as a campaign reads it."""
    row = dict.fromkeys(("workload_digest", "sources", "environment", "reason", "log"))
    ids = {"attempt_id": f"{trial_id}1", "trial_id": trial_id, "harness": "dtsweep"}
    return {**row, **ids, "role": "trial", "status": status, **values}


LOST = {"reason": "the node went away while it trained", "log": "logs/s1/3.log"}

ROWS = [
    attempt(f"{status}{number}", status, **(LOST if status == "node_lost" else {}))
    for status, count in ENDS.items()
    for number in range(count)
]


def campaign(*, live: LiveRun | None = LIVE, **fields: Any) -> Campaign:
    earlier = replace(RECORD, run_id="a", ended_at=NOW - 2500.0, started_at=NOW - 6100.0)
    runs = [StoredRun(earlier, 2500.0), StoredRun(replace(RECORD, **fields), 3.0)]
    return campaign_of(live, runs, ROWS)


def printed(shown: Campaign, *, width: int) -> list[str]:
    out = StringIO()
    console = Console(file=out, width=width, color_system=None)
    print_status(shown, console=console, where="s3://bucket/results/batchsize", now=NOW)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def words(shown: Campaign) -> str:
    return " ".join(" ".join(printed(shown, width=140)).split())


@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(width: int) -> None:
    lines = printed(campaign(), width=width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for whole in ("node_lost", "logs/s1/3.log", "$2.48", "75 s"):
        assert whole in text


def test_a_run_that_lives_says_how_far_it_is_what_it_takes_and_what_is_left() -> None:
    text = words(campaign())
    for said in (
        "batchsize · s3://bucket/results/batchsize",
        "Running on ip-10-0-12-34.eu-central-1.compute.internal (process 4711) since "
        "2025-06-15 14:26:40 UTC; last sign of life 4 s ago.",
        "trials 40 of 60 done (36 ok, 4 oom_device), 2 failed (2 node_lost), 1 running, 17 left",
        "stored 79 trials (70 ok, 4 oom_device, 3 skipped, 2 node_lost)",
        # 2,400 s until the last look, and 12 min.
        "time 40 min so far, about 12 min left; limit 2.0 h",
        "cost $2.48 so far, about $0.41 left; limit $4.00",
        "all runs 2 runs, 1.7 h",
        "Running: 2 attempts",
        "canary workers=2",
        "2 node_lost the node went away while it trained logs/s1/3.log",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"ended_as": "done"}, "all planned trials have ended."),
        ({"ended_as": "budget"}, "the same command with more goes on."),
        ({"ended_as": "interrupted"}, "it was interrupted; the same command goes on."),
        ({"ended_as": "failed", "reason": "the cluster has stopped"}, "the cluster has stopped."),
    ],
)
def test_a_run_that_has_ended_says_how(fields: dict[str, Any], said: str) -> None:
    shown = campaign(live=None, ended_at=NOW - 200.0, running=(), **fields)
    _, _, how = words(shown).partition("Ended 2025-06-15 15:03:20 UTC, 3 min ago: ")
    assert said in how
    assert "about" not in words(shown)


def test_a_run_without_a_word_of_its_end_was_killed() -> None:
    text = words(campaign(live=None))
    assert "Killed, or cut off from its results" in text
    assert "The same command goes on." in text
    assert "18 left" in text
    assert "Running" not in text


def test_what_is_unknown_is_not_shown_as_a_number() -> None:
    bare = replace(RECORD, node_s=None, cost_usd=None, expected_left_s=None, max_hours=None)
    text = words(campaign_of(LIVE, [StoredRun(bare, 3.0)], []))
    assert "cost unknown; limit $4.00" in text
    assert "about" not in text


def test_json_has_the_record_of_the_run_and_null_for_what_is_unknown() -> None:
    shown = json.loads(json.dumps(status_json(campaign(), where="r")))
    run = {name: shown["run"][name] for name in ("pid", "started_at", "ended_at", "silent_s")}
    assert run == {"pid": 4711, "started_at": NOW - 2400.0, "ended_at": None, "silent_s": 4.0}
    assert (shown["state"], shown["statuses"]) == ("running", ENDS)
    assert shown["trials"] == {"total": 60, "done": 40, "failed": 2, "running": 1, "left": 17}
    assert shown["node_s"]["head"] == 4800.0
    assert shown["failures"] == [{"status": "node_lost", "trials": 2, **LOST}]
    assert status_json(campaign_of(None, [], ROWS), where="r")["run"] is None
    begun = status_json(campaign_of(LIVE, [], ROWS), where="r")["run"]
    assert (begun["host"], begun["pid"], begun["silent_s"]) == (RECORD.host, 4711, 4.0)


# The state itself, by the lease, the records of runs, and their rows

ALIVE = LiveRun(run_id="b", host="head", pid=7, since="2026-01-01", silent_s=4.0)


def run(run_id: str, *, age_s: float = 2.0, **fields: Any) -> StoredRun:
    record = RunRecord(
        run_id=run_id, sweep="s", host="head", pid=7, started_at=100.0, updated_at=160.0, total=10
    )
    return StoredRun(replace(record, **fields), age_s)


def ended(run_id: str, **fields: Any) -> StoredRun:
    return run(run_id, **{"ended_at": 190.0, "ended_as": "done", **fields})


def seen(*runs: StoredRun, live: LiveRun | None = None) -> Campaign:
    return campaign_of(live, runs, [])


@pytest.mark.parametrize(
    ("live", "runs", "state"),
    [
        (None, [], "unknown"),
        (ALIVE, [], "starting"),
        (ALIVE, [ended("a")], "starting"),
        (ALIVE, [ended("a"), run("b")], "running"),
        (ALIVE, [ended("a"), ended("b")], "ending"),
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
    alive = seen(stored, live=ALIVE)
    # A canary is not among the trials that are counted.
    assert alive.trials == RunTrials(total=10, done=4, failed=2, running=1, left=3)
    assert alive.running == running
    killed = seen(stored)
    assert killed.trials == RunTrials(total=10, done=4, failed=2, running=0, left=4)
    assert killed.running == ()


def test_times_of_all_runs_add_up_and_of_a_killed_one_its_last_record_counts() -> None:
    killed = run("a", age_s=10_000.0)
    # 60 s to its last record; 90 s to its end; 60 s and the 2 s since then.
    campaign = seen(killed, ended("c"), run("b"), live=ALIVE)
    assert campaign.time_s == 60.0 + 90.0 + 62.0
    assert campaign.run_s == 62.0


def test_what_is_left_counts_down_between_two_records_and_is_unknown_without_a_run() -> None:
    stored = run("b", expected_left_s=30.0, expected_left_usd=1.5)
    campaign = seen(stored, live=ALIVE)
    assert (campaign.expected_left_s, campaign.expected_left_usd) == (28.0, 1.5)
    assert seen(StoredRun(stored.record, 60.0), live=ALIVE).expected_left_s == 0.0
    assert (seen(stored).expected_left_s, seen(stored).expected_left_usd) == (None, None)


def test_costs_add_up_as_far_as_they_are_known() -> None:
    campaign = seen(ended("a", cost_usd=1.0), ended("b"), ended("c", cost_usd=0.5))
    assert (campaign.cost_usd, campaign.runs_without_cost) == (1.5, 1)
    assert seen(ended("a")).cost_usd is None


def test_a_trial_counts_by_its_newest_ok_attempt_and_a_canary_not_at_all() -> None:
    rows = [
        attempt("a", "node_lost", reason="gone"),
        attempt("a", "ok"),
        attempt("b", "ok"),
        attempt("b", "node_lost", reason="gone"),
        attempt("c", "ok", role="canary"),
        attempt("d", "skipped", reason="impossible"),
    ]
    assert campaign_of(None, [], rows).statuses == {"ok": 2, "skipped": 1}
    assert campaign_of(None, [], rows).failures == []


def test_failures_have_their_number_and_the_newest_reason_and_log() -> None:
    rows = [
        attempt("a", "nan", reason="not finite"),
        attempt("b", "hang", reason="first", log="logs/b.log"),
        attempt("c", "hang", reason="second", log="logs/c.log"),
        attempt("d", "cancelled", reason="interrupted"),
        attempt("e", "oom_device", reason="full"),
    ]
    assert campaign_of(None, [], rows).failures == [
        Failure(status="hang", trials=2, reason="second", log="logs/c.log"),
        Failure(status="nan", trials=1, reason="not finite", log=None),
    ]
