"""State of a campaign: in the terminal, and as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dtsweep.errors import SHOWN, shortened
from dtsweep.results.campaign import ENDING, KILLED, RUNNING, STARTING, Campaign, RunTrials
from dtsweep.results.statuses import CUT, FINE
from dtsweep.text import count_of, duration, plain, print_table, say, usd

if TYPE_CHECKING:
    from rich.console import Console

_RUNNING_SHOWN = 16
"""Attempts under way that are listed."""

_ENDS = {
    "done": "all planned trials have ended",
    "budget": "its limit of time or money was reached; the same command with more goes on",
    "interrupted": "it was interrupted; the same command goes on",
}
"""Ends of runs in words, by `RunRecord.ended_as`."""


def print_status(campaign: Campaign, *, console: Console, where: str, now: float) -> None:
    """Print how a campaign stands.

    Args:
        campaign: its state.
        console: where to.
        where: the results.
        now: Unix time in seconds.
    """
    record = campaign.record
    say(console, where if record is None else f"{record.sweep} · {where}", style="bold")
    say(console, _state_words(campaign, now))
    facts = {}
    if campaign.trials is not None and record is not None:
        facts["trials"] = _trials_words(campaign.trials, record.statuses)
    facts["stored"] = _stored_words(campaign)
    facts |= _spent_words(campaign)
    if "cost" in facts and campaign.runs_without_cost:
        facts["cost"] += f"; of {count_of(campaign.runs_without_cost, 'run')} it is unknown"
    if record is not None and record.max_hours is not None:
        facts["time"] += f"; limit {duration(record.max_hours * 3600)}"
    if record is not None and record.max_cost_usd is not None:
        facts["cost"] = f"{facts.get('cost', 'unknown')}; limit {usd(record.max_cost_usd)}"
    if campaign.runs > 1 and campaign.time_s is not None:
        facts["all runs"] = f"{count_of(campaign.runs, 'run')}, {duration(campaign.time_s)}"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, words in facts.items():
        grid.add_row(plain(label), plain(words))
    console.print(grid)
    if campaign.running:
        shown = sorted(campaign.running, key=lambda trial: trial.since)[:_RUNNING_SHOWN]
        columns = {
            "for": [duration(max(0.0, now - trial.since)) for trial in shown],
            "point": [f"canary {trial.name}" if trial.is_canary else trial.name for trial in shown],
        }
        say(console, f"\nRunning: {count_of(len(campaign.running), 'attempt')}", style="bold")
        print_table(columns, console=console)
    if failures := campaign.failures:
        columns = {
            "trials": [str(failure.trials) for failure in failures],
            "status": [failure.status for failure in failures],
            "newest reason": [shortened(each.reason or "unknown", SHOWN) for each in failures],
            "its log": [failure.log or "none" for failure in failures],
        }
        say(console, "\nFailed trials", style="bold")
        print_table(columns, console=console)


def _spent_words(campaign: Campaign) -> dict[str, str]:
    """Time of the run and cost of all runs so far, and what is left; unknown ones are left out."""
    amounts = {
        "time": (campaign.run_s, campaign.expected_left_s, duration),
        "cost": (campaign.cost_usd, campaign.expected_left_usd, usd),
    }
    spent = {}
    for name, (so_far, left, words) in amounts.items():
        if so_far is not None:
            spent[name] = words(so_far)
            if campaign.is_under_way:
                spent[name] += " so far"
            if left is not None:
                spent[name] += f", about {words(left)} left"
    return spent


def status_json(campaign: Campaign, *, where: str) -> dict[str, Any]:
    """Give the state of a campaign as JSON values; times are Unix times, unknown is None."""
    values = asdict(campaign)
    record, live = values.pop("record"), values.pop("live")
    run = None
    if record is not None or live is not None:
        run = {"silent_s": None, "since": None, **(live or {}), **(record or {})}
        run.pop("points", None)
    return {"results": where, "run": run, **values}


def _state_words(campaign: Campaign, now: float) -> str:
    """Say in a sentence whether a run lives, or how the last one ended."""
    live, record = campaign.live, campaign.record
    if live is not None and campaign.state == STARTING:
        return f"Starting: {live.description}."
    if record is None:
        return "No run on record; these rows were stored without one."
    who = f"{record.host} (process {record.pid})"
    since = f"since {_time_of(record.started_at)}"
    if live is not None and campaign.state == RUNNING:
        silent = duration(live.silent_s)
        return f"Running on {who} {since}; last sign of life {silent} ago."
    if campaign.state == KILLED:
        return (
            f"Killed, or cut off from its results: the run on {who} {since} has not said how it "
            f"ended. Last record {duration(max(0.0, campaign.record_age_s or 0.0))} ago. "
            "The same command goes on."
        )
    end = _ENDS.get(record.ended_as or "", "")
    if record.ended_as == "failed":
        end = f"it failed: {shortened(record.reason or 'for an unknown reason', SHOWN)}"
    if campaign.state == ENDING:
        return f"Ending on {who}: {end}; its last rows are being stored."
    ended_at = record.ended_at or record.updated_at
    return f"Ended {_time_of(ended_at)}, {duration(max(0.0, now - ended_at))} ago: {end}."


def _trials_words(trials: RunTrials, statuses: Mapping[str, int]) -> str:
    """Trials of a run in words, with their number by status."""
    fine = {status: count for status, count in statuses.items() if status in FINE}
    failed = {status: count for status, count in statuses.items() if status not in FINE | CUT}
    cut = {status: count for status, count in statuses.items() if status in CUT}
    parts = [f"{trials.done} of {trials.total} done{_in_brackets(fine)}"]
    if trials.failed:
        parts.append(f"{trials.failed} failed{_in_brackets(failed)}")
    if trials.running:
        parts.append(f"{trials.running} running")
    if trials.left:
        parts.append(f"{trials.left} left{_in_brackets(cut)}")
    return ", ".join(parts)


def _stored_words(campaign: Campaign) -> str:
    """Trials of all runs in words."""
    if not campaign.statuses:
        return "nothing yet"
    count = count_of(sum(campaign.statuses.values()), "trial")
    return f"{count}{_in_brackets(campaign.statuses)}"


def _in_brackets(statuses: Mapping[str, int]) -> str:
    if not statuses:
        return ""
    counted = sorted(statuses.items(), key=lambda item: -item[1])
    return f" ({', '.join(f'{count} {status}' for status, count in counted)})"


def _time_of(unix_time: float) -> str:
    return f"{datetime.fromtimestamp(unix_time, UTC):%Y-%m-%d %H:%M:%S} UTC"
