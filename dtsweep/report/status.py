"""State of a campaign: in the terminal, in one line, and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dtsweep.analysis.campaign import (
    ENDED,
    ENDING,
    KILLED,
    RUNNING,
    STARTING,
    Campaign,
    RunTrials,
)
from dtsweep.errors import SHOWN, shortened
from dtsweep.results.overview import AttemptRow
from dtsweep.results.run_record import RunningTrial, RunRecord
from dtsweep.results.statuses import CUT, FINE
from dtsweep.text import (
    count_of,
    duration,
    format_number,
    format_rates,
    plain,
    print_table,
    say,
)

if TYPE_CHECKING:
    from rich.console import Console

RUNNING_SHOWN = 16
"""Attempts under way that are listed; of more only the number is shown."""

DAY_S = 86400.0

_GOES_ON = "The same command goes on."

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
    say(console, _title(campaign, where), style="bold")
    say(console, _state_words(campaign, now))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for label, words in _facts(campaign).items():
        facts.add_row(plain(label), plain(words))
    console.print(facts)
    sections: dict[str, Mapping[str, Sequence[str]]] = {
        "Running": _running_columns(campaign.running, now),
        "Last attempts": _attempt_columns(campaign.overview.last, now),
        "Failed trials": _failure_columns(campaign),
    }
    for title, columns in sections.items():
        if columns:
            say(console, f"\n{title}", style="bold")
            print_table(columns, console=console)
    if (more := len(campaign.running) - RUNNING_SHOWN) > 0:
        say(console, f"{count_of(more, 'more attempt')} under way")


def status_line(campaign: Campaign) -> str:
    """Say in one line how a campaign stands, without the time: it changes when something ends."""
    parts = [campaign.state]
    if campaign.state == ENDED and campaign.record is not None:
        parts = [f"ended as {campaign.record.ended_as}"]
    if campaign.trials is not None and campaign.record is not None:
        parts.append(_trials_words(campaign.trials, campaign.record.statuses))
    else:
        parts.append(_stored_words(campaign))
    return ": ".join(parts)


def spent_words(campaign: Campaign) -> str:
    """Time and cost so far, and what is left of both."""
    return "; ".join(filter(None, [_time_words(campaign), _cost_words(campaign)]))


def status_json(campaign: Campaign, *, where: str) -> dict[str, Any]:
    """Give the state of a campaign as JSON values; times are ISO 8601 in UTC, unknown is None."""
    overview = campaign.overview
    return {
        "results": where,
        "state": campaign.state,
        "run": _run_json(campaign),
        "runs": campaign.runs,
        "trials": None if campaign.trials is None else asdict(campaign.trials),
        "statuses": dict(overview.statuses),
        "running": [asdict(trial) | {"since": _iso(trial.since)} for trial in campaign.running],
        "run_s": campaign.run_s,
        "time_s": campaign.time_s,
        "expected_left_s": campaign.left_s,
        "cost_usd": campaign.cost_usd,
        "runs_without_cost": campaign.runs_without_cost,
        "expected_left_usd": campaign.left_usd,
        "node_s": dict(campaign.node_s),
        "last": [asdict(row) | {"started_at": _iso(row.started_at)} for row in overview.last],
        "failures": [asdict(failure) for failure in overview.failures],
    }


def _run_json(campaign: Campaign) -> dict[str, Any] | None:
    """The run that lives or was the last one, as JSON values."""
    record, live = campaign.record, campaign.live
    if record is None:
        if live is None:
            return None
        return {"host": live.host, "pid": live.pid, "silent_s": live.silent_s}
    return {
        "run_id": record.run_id,
        "sweep": record.sweep,
        "host": record.host,
        "pid": record.pid,
        "started_at": _iso(record.started_at),
        "updated_at": _iso(record.updated_at),
        "silent_s": None if live is None else live.silent_s,
        "ended_at": _iso(record.ended_at),
        "ended_as": record.ended_as,
        "reason": record.reason,
        "statuses": dict(record.statuses),
        "max_hours": record.max_hours,
        "max_cost_usd": record.max_cost_usd,
        "usd_per_hour": dict(record.usd_per_hour),
    }


def _title(campaign: Campaign, where: str) -> str:
    if campaign.record is None:
        return where
    return f"{campaign.record.sweep} · {where}"


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
            f"ended. Last record {duration(_age_s(campaign))} ago. {_GOES_ON}"
        )
    end = _ENDS.get(record.ended_as or "", "")
    if record.ended_as == "failed":
        reason = shortened(record.reason or "for an unknown reason", SHOWN)
        end = f"it failed: {reason}"
    if campaign.state == ENDING:
        return f"Ending on {who}: {end}; its last rows are being stored."
    ended_at = record.ended_at or record.updated_at
    ago = duration(max(0.0, now - ended_at))
    return f"Ended {_time_of(ended_at)}, {ago} ago: {end}."


def _age_s(campaign: Campaign) -> float:
    if campaign.run is None:
        return math.nan
    return max(0.0, campaign.run.age_s)


def _facts(campaign: Campaign) -> dict[str, str]:
    """Facts of a campaign in words, by their label."""
    facts = {}
    record = campaign.record
    if campaign.trials is not None and record is not None:
        facts["trials"] = _trials_words(campaign.trials, record.statuses)
    facts["stored"] = _stored_words(campaign)
    if time_words := _time_words(campaign):
        facts["time"] = time_words
    if campaign.runs > 1 and campaign.time_s is not None:
        facts["all runs"] = f"{count_of(campaign.runs, 'run')}, {duration(campaign.time_s)}"
    if cost_words := _cost_words(campaign):
        facts["cost"] = cost_words
        if campaign.runs_without_cost:
            unknown = count_of(campaign.runs_without_cost, "run")
            facts["cost"] += f"; of {unknown} it is unknown"
    if record is not None and (budget := _budget_words(campaign, record)):
        facts["budget"] = budget
    if campaign.node_s:
        by_type = ", ".join(f"{name} {seconds:,.0f}" for name, seconds in campaign.node_s.items())
        facts["nodes"] = f"{sum(campaign.node_s.values()):,.0f} node-s ({by_type})"
    return facts


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
    statuses = campaign.overview.statuses
    if not statuses:
        return "nothing yet"
    return f"{count_of(sum(statuses.values()), 'trial')}{_in_brackets(statuses)}"


def _in_brackets(statuses: Mapping[str, int]) -> str:
    if not statuses:
        return ""
    counted = sorted(statuses.items(), key=lambda item: -item[1])
    return f" ({', '.join(f'{count} {status}' for status, count in counted)})"


def _budget_words(campaign: Campaign, record: RunRecord) -> str:
    """Limits of a run, and how much of each is used."""
    parts = []
    if record.max_cost_usd is not None:
        spent = "an unknown part"
        if campaign.cost_usd is not None:
            spent = f"{_dollars(campaign.cost_usd)}{_share(campaign.cost_usd, record.max_cost_usd)}"
        parts.append(f"{spent} of {_dollars(record.max_cost_usd)} used")
    if record.max_hours is not None and campaign.run_s is not None:
        limit_s = record.max_hours * 3600
        used = f"{duration(campaign.run_s)}{_share(campaign.run_s, limit_s)}"
        parts.append(f"{used} of {duration(limit_s)} used by this run")
    return "; ".join(parts)


def _share(part: float, whole: float) -> str:
    if not whole:
        return ""
    return f" ({part / whole * 100:.0f} %)"


def _time_words(campaign: Campaign) -> str:
    """Time of the run so far, and of what is left; empty if it is unknown."""
    return _with_left(campaign, campaign.run_s, campaign.left_s, duration)


def _cost_words(campaign: Campaign) -> str:
    """Cost of all runs so far, and of what is left; empty if it is unknown."""
    return _with_left(campaign, campaign.cost_usd, campaign.left_usd, _dollars)


def _with_left(
    campaign: Campaign, so_far: float | None, left: float | None, words: Callable[[float], str]
) -> str:
    if so_far is None:
        return ""
    if not campaign.is_under_way:
        return words(so_far)
    if left is None:
        return f"{words(so_far)} so far"
    return f"{words(so_far)} so far, about {words(left)} left"


def _running_columns(running: Sequence[RunningTrial], now: float) -> dict[str, list[str]]:
    if not running:
        return {}
    shown = sorted(running, key=lambda trial: trial.since)[:RUNNING_SHOWN]
    names = [f"canary {trial.name}" if trial.is_canary else trial.name for trial in shown]
    return {
        "for": [duration(max(0.0, now - trial.since)) for trial in shown],
        "point": names,
    }


def _attempt_columns(rows: Sequence[AttemptRow], now: float) -> dict[str, list[str]]:
    if not rows:
        return {}
    latencies = [_or_nan(row.latency_s) * 1e3 for row in rows]
    rates = [_or_nan(row.samples_per_s) for row in rows]
    columns = {
        "began\nUTC": [_short_time(row.started_at, now) for row in rows],
        "point": [row.name for row in rows],
        "status": [row.status for row in rows],
        "step\nms": [format_number(value) for value in latencies],
        "samples\n/s": format_rates(rates),
    }
    if any(row.cost_usd is not None for row in rows):
        columns["cost\nUSD"] = [
            "" if row.cost_usd is None else f"{row.cost_usd:.4f}" for row in rows
        ]
    return columns


def _or_nan(value: float | None) -> float:
    if value is None:
        return math.nan
    return value


def _failure_columns(campaign: Campaign) -> dict[str, list[str]]:
    failures = campaign.overview.failures
    if not failures:
        return {}
    return {
        "trials": [str(failure.trials) for failure in failures],
        "status": [failure.status for failure in failures],
        "newest reason": [
            f"{failure.name}: {shortened(failure.reason or 'unknown', SHOWN)}"
            for failure in failures
        ],
    }


def _dollars(amount: float) -> str:
    """Write an amount of money.

    >>> _dollars(1234.5), _dollars(0.0042)
    ('$1,234.50', '$0.0042')
    """
    if 0 < amount < 0.1:
        return f"${amount:.4f}"
    return f"${amount:,.2f}"


def _time_of(unix_time: float) -> str:
    return f"{datetime.fromtimestamp(unix_time, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _short_time(unix_time: float | None, now: float) -> str:
    """Write a time of the last day without its date."""
    if unix_time is None:
        return ""
    time_of_day = datetime.fromtimestamp(unix_time, UTC)
    if now - unix_time < DAY_S:
        return f"{time_of_day:%H:%M:%S}"
    return f"{time_of_day:%m-%d %H:%M}"


def _iso(unix_time: float | None) -> str | None:
    if unix_time is None:
        return None
    return datetime.fromtimestamp(unix_time, UTC).isoformat(timespec="milliseconds")
