"""State of a campaign: in the terminal, in one line, and as JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from dtsweep.errors import SHOWN, shortened
from dtsweep.results.campaign import (
    ENDED,
    ENDING,
    KILLED,
    RUNNING,
    STARTING,
    Campaign,
    RunTrials,
)
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

_RUNNING_SHOWN = 16
"""Attempts under way that are listed; of more only the number is shown."""

_DAY_S = 86400.0

_ENDS = {
    "done": "all planned trials have ended",
    "budget": "its limit of time or money was reached; the same command with more goes on",
    "interrupted": "it was interrupted; the same command goes on",
}
"""Ends of runs in words, by `RunRecord.ended_as`."""


_OF_RUN = (
    "run_id",
    "sweep",
    "host",
    "pid",
    "ended_as",
    "reason",
    "statuses",
    "max_hours",
    "max_cost_usd",
    "usd_per_hour",
)
"""Fields of a record in the JSON of a run, in addition to its times."""


def print_status(campaign: Campaign, *, console: Console, where: str, now: float) -> None:
    """Print how a campaign stands.

    Args:
        campaign: its state.
        console: where to.
        where: the results.
        now: Unix time in seconds.
    """
    title = where
    if campaign.record is not None:
        title = f"{campaign.record.sweep} · {where}"
    say(console, title, style="bold")
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
    if (more := len(campaign.running) - _RUNNING_SHOWN) > 0:
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
    return "; ".join(_spent(campaign).values())


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
    stored = asdict(record)
    times = {name: _iso(stored[name]) for name in ("started_at", "updated_at", "ended_at")}
    silent_s = None if live is None else live.silent_s
    return {name: stored[name] for name in _OF_RUN} | times | {"silent_s": silent_s}


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
        age_s = math.nan if campaign.run is None else max(0.0, campaign.run.age_s)
        return (
            f"Killed, or cut off from its results: the run on {who} {since} has not said how it "
            f"ended. Last record {duration(age_s)} ago. The same command goes on."
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


def _facts(campaign: Campaign) -> dict[str, str]:
    """Facts of a campaign in words, by their label."""
    facts = {}
    record = campaign.record
    if campaign.trials is not None and record is not None:
        facts["trials"] = _trials_words(campaign.trials, record.statuses)
    facts["stored"] = _stored_words(campaign)
    facts |= _spent(campaign)
    if campaign.runs > 1 and campaign.time_s is not None:
        facts["all runs"] = f"{count_of(campaign.runs, 'run')}, {duration(campaign.time_s)}"
    if "cost" in facts and campaign.runs_without_cost:
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


def _spent(campaign: Campaign) -> dict[str, str]:
    """Time of the run and cost of all runs so far, and what is left; unknown ones are left out."""
    amounts: dict[str, tuple[float | None, float | None, Callable[[float], str]]] = {
        "time": (campaign.run_s, campaign.left_s, duration),
        "cost": (campaign.cost_usd, campaign.left_usd, _dollars),
    }
    spent = {}
    for name, (so_far, left, words) in amounts.items():
        if so_far is None:
            continue
        spent[name] = words(so_far)
        if campaign.is_under_way:
            spent[name] += " so far"
            if left is not None:
                spent[name] += f", about {words(left)} left"
    return spent


def _running_columns(running: Sequence[RunningTrial], now: float) -> dict[str, list[str]]:
    if not running:
        return {}
    shown = sorted(running, key=lambda trial: trial.since)[:_RUNNING_SHOWN]
    return {
        "for": [duration(max(0.0, now - trial.since)) for trial in shown],
        "point": [f"canary {trial.name}" if trial.is_canary else trial.name for trial in shown],
    }


def _attempt_columns(rows: Sequence[AttemptRow], now: float) -> dict[str, list[str]]:
    if not rows:
        return {}
    latencies, rates = (
        np.array([getattr(row, name) for row in rows], dtype=np.float64)
        for name in ("latency_s", "samples_per_s")
    )
    columns = {
        "began\nUTC": [_short_time(row.started_at, now) for row in rows],
        "point": [row.name for row in rows],
        "status": [row.status for row in rows],
        "step\nms": [format_number(value) for value in latencies * 1e3],
        "samples\n/s": format_rates(rates),
    }
    if any(row.cost_usd is not None for row in rows):
        columns["cost\nUSD"] = [
            "" if row.cost_usd is None else f"{row.cost_usd:.4f}" for row in rows
        ]
    return columns


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
    if now - unix_time < _DAY_S:
        return f"{time_of_day:%H:%M:%S}"
    return f"{time_of_day:%m-%d %H:%M}"


def _iso(unix_time: float | None) -> str | None:
    if unix_time is None:
        return None
    return datetime.fromtimestamp(unix_time, UTC).isoformat(timespec="milliseconds")
