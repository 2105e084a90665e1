"""State of a campaign in words, at the widths of terminals, and as JSON values."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dtsweep.cli.status_view import print_status, spent_words, status_json, status_line
from dtsweep.results.campaign import Campaign, RunTrials, campaign_of
from dtsweep.results.lease import LiveRun
from dtsweep.results.overview import AttemptRow, Failure, Overview
from dtsweep.results.run_record import RunningTrial, RunRecord, StoredRun

NOW = 1_750_000_000.0

POINT = "workers=16 micro_batch=64 accumulation=4 sync=hsdp node_size=8 precision=bf16"

ROW = AttemptRow(
    trial_id="t",
    name=POINT,
    status="ok",
    reason=None,
    started_at=NOW - 70.0,
    latency_s=0.0414,
    samples_per_s=123456.0,
    cost_usd=0.0312,
)

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

OVERVIEW = Overview(
    statuses={"ok": 70, "oom_device": 4, "skipped": 3, "node_lost": 2},
    failures=[
        Failure(
            status="node_lost", trials=2, name=POINT, reason="the node went away while it trained"
        )
    ],
    last=[ROW, replace(ROW, status="node_lost", latency_s=None, samples_per_s=None, cost_usd=None)],
)


def campaign(*, live: LiveRun | None = LIVE, **fields: Any) -> Campaign:
    earlier = replace(RECORD, run_id="a", ended_at=NOW - 2500.0, started_at=NOW - 6100.0)
    runs = [StoredRun(earlier, 2500.0), StoredRun(replace(RECORD, **fields), 3.0)]
    return campaign_of(live, runs, OVERVIEW)


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
    for whole in ("41.40", "123.5k", "0.0312", "node_lost", "g5.12xlarge:spot", "25,400"):
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
        "time 40 min so far, about 12 min left",
        "all runs 2 runs, 1.7 h",
        "cost $2.48 so far, about $0.41 left",
        "budget $2.48 (62 %) of $4.00 used; 40 min (33 %) of 2.0 h used by this run",
        "canary workers=2",
        "node_lost",
    ):
        assert said in text
    assert "nodes 30,200 node-s (g5.12xlarge:spot 25,400, head 4,800)" in text


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
    assert "left" not in spent_words(shown)


def test_a_run_without_a_word_of_its_end_was_killed() -> None:
    text = words(campaign(live=None))
    assert "Killed, or cut off from its results" in text
    assert "The same command goes on." in text
    assert "18 left" in text
    assert "Running" not in text


def test_what_is_unknown_is_not_shown_as_a_number() -> None:
    bare = replace(RECORD, node_s=None, cost_usd=None, expected_left_s=None, max_hours=None)
    shown = campaign_of(LIVE, [StoredRun(bare, 3.0)], replace(OVERVIEW, last=(), failures=()))
    text = words(shown)
    assert "an unknown part of $4.00 used" in text
    assert [part for part in ("about", "cost", "node-s") if part in text] == []


def test_a_line_changes_only_when_something_ends_or_begins() -> None:
    line = status_line(campaign())
    assert line == (
        "running: 40 of 60 done (36 ok, 4 oom_device), 2 failed (2 node_lost), 1 running, 17 left"
    )
    assert status_line(campaign(expected_left_s=1.0, updated_at=NOW)) == line
    assert spent_words(campaign()) == (
        "40 min so far, about 12 min left; $2.48 so far, about $0.41 left"
    )
    assert status_line(campaign_of(LIVE, [], OVERVIEW)).startswith("starting: 79 trials")


def test_json_has_times_in_utc_and_null_for_what_is_unknown() -> None:
    shown = json.loads(json.dumps(status_json(campaign(), where="r")))
    run = {name: shown["run"][name] for name in ("pid", "started_at", "ended_at")}
    assert run == {"pid": 4711, "started_at": "2025-06-15T14:26:40.000+00:00", "ended_at": None}
    assert shown["state"] == "running"
    assert shown["trials"] == {"total": 60, "done": 40, "failed": 2, "running": 1, "left": 17}
    assert shown["node_s"]["head"] == 4800.0
    assert shown["last"][1]["latency_s"] is None
    assert shown["failures"][0]["trials"] == 2
    assert status_json(campaign_of(None, [], OVERVIEW), where="r")["run"] is None
    begun = status_json(campaign_of(LIVE, [], OVERVIEW), where="r")["run"]
    assert begun == {"host": RECORD.host, "pid": 4711, "silent_s": 4.0}


# The state itself, by the lease, the records of runs, and their rows

NOTHING = Overview(statuses={}, failures=(), last=())

ALIVE = LiveRun(run_id="b", host="head", pid=7, since="2026-01-01", silent_s=4.0)


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
    assert (campaign.left_s, campaign.left_usd) == (28.0, 1.5)
    assert seen(StoredRun(stored.record, 60.0), live=ALIVE).left_s == 0.0
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
