"""Expected duration of a run."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dtsweep.plan.trial import (
    Row,
    Rows,
    Trial,
    group_launches,
    groups_of,
    has_canaries,
    sessions_of,
)
from dtsweep.sweep.settings import ENERGY_FROM_S, Measure, Sweep

_LEAST_S = 0.5
"""Shortest window that is expected, in seconds."""

SESSION_START_S = 15.0
"""Time of a session's start, until results give a better value."""

TRIAL_REST_S, AFTER_SHARE = 1.5, 0.25
"""Time of a trial without its window: seconds, and a share of the window for what follows it.

Until results give a better value.
"""

_TRAINING_SHARE = 0.25
"""Expected training to a target, as a share of the longest one, until results give a better."""

_TOWARDS_LONGEST = 0.75
"""Place of the expected window between the shortest and the longest possible one.

On the geometric scale, where 0.5 is the middle. Windows of the example sweeps on two busy cores end
nearer to their longest.
"""

ASSUMED_FACTOR, MEASURED_FACTOR = 1.7, 1.5
"""Factors from the expected duration to both ends of its range: without results, and with some."""


class Duration(NamedTuple):
    """Range of the expected duration of a run."""

    low_s: float
    high_s: float
    measured: int
    """Number of measured trials that it rests on; 0: it rests on the limits of windows."""

    @property
    def middle_s(self) -> float:
        """Middle of the range, on the geometric scale."""
        return math.sqrt(self.low_s * self.high_s)


def expected_duration(sweep: Sweep, trials: Sequence[Trial], rows: Rows) -> Duration:
    """Expect what finished trials took, else windows between the shortest and the longest."""
    measured = len(_took_s(rows, are_canaries=False))
    factor = MEASURED_FACTOR if measured else ASSUMED_FACTOR
    seconds = sum(session_times(sweep, trials, rows)) / sweep.resources.concurrent
    return Duration(seconds / factor, seconds * factor, measured)


def session_times(sweep: Sweep, trials: Sequence[Trial], rows: Rows) -> list[float]:
    """Expect the seconds of each session, if none fails and nodes stay."""
    took = _took_s(rows, are_canaries=False)
    each_start_s, canary_s = start_s(rows), _canary_s(sweep, rows)
    nests = sweep.measure.nested and not sweep.measure.fresh
    groups = groups_of(trials, fresh=sweep.measure.fresh)
    times = []
    for session in sessions_of(groups, nests=nests, slots=sweep.resources.concurrent):
        settings = Counter(trial.measure or sweep.measure for trial in session)
        seconds = each_start_s
        seconds += sum(count * _trial_s(measure, took) for measure, count in settings.items())
        if not took and (goal := sweep.training_goal):
            seconds += len(session) * _TRAINING_SHARE * goal.longest_s
        if has_canaries(sweep, session):
            seconds += 2 * canary_s
        times.append(seconds)
    return times


def are_brief(sweep: Sweep, groups: Sequence[Sequence[Trial]], rows: Rows) -> bool:
    """True if smaller worlds of each launch should take less time than a start of their own."""
    smaller = []
    for worlds in group_launches(groups):
        largest = max(worlds, key=lambda group: group[0].point.workers)
        smaller.append(sum(map(len, worlds)) - len(largest))
    per_trial = _trial_s(sweep.measure, _took_s(rows, are_canaries=False))
    return max(smaller, default=0) * per_trial < start_s(rows)


def _trial_s(measure: Measure, took: Sequence[float]) -> float:
    """Expected time of a trial with these settings, by what others took."""
    if took:
        return sum(took) / len(took)
    return _window_s(measure) * (1 + AFTER_SHARE) + TRIAL_REST_S


def _canary_s(sweep: Sweep, rows: Rows) -> float:
    """Expected time of a canary, which is measured to a higher precision than a trial."""
    took = _took_s(rows, are_canaries=True)
    if took:
        return sum(took) / len(took)
    if sweep.measure.half_width is None:
        return _window_s(sweep.measure) + TRIAL_REST_S
    return sweep.measure.max_seconds + TRIAL_REST_S


def _took_s(rows: Rows, *, are_canaries: bool) -> list[float]:
    return [
        float((row["trial_s"] or row["window_s"]) + (row["overhead_s"] or 0))
        for row in _measured(rows)
        if (row["role"] == "canary") == are_canaries
    ]


def start_s(rows: Rows) -> float:
    """Expected time of the start of a session, by what was measured so far."""
    longest: dict[str, float] = {}
    for row in _measured(rows):
        # Nodes that came stay for what follows: their wait is no part of another start.
        seconds = float(row["startup_s"] or 0.0) - float(row["nodes_wait_s"] or 0.0)
        # Of a session the longest: its other trials waited for parameter servers alone.
        longest[row["session"]] = max(longest.get(row["session"], 0.0), seconds)
    durations = [seconds for seconds in longest.values() if seconds]
    if durations:
        return statistics.median(durations)
    return SESSION_START_S


def _measured(rows: Rows) -> list[Row]:
    return [row for row in rows if row["status"] == "ok" and row["window_s"]]


def _window_s(measure: Measure) -> float:
    least = measure.min_seconds
    if measure.energy:
        least = max(least, ENERGY_FROM_S)
    shortest = min(least, measure.max_seconds)
    if measure.half_width is None:
        return shortest
    least_s = max(shortest, _LEAST_S)
    return float(least_s ** (1 - _TOWARDS_LONGEST) * measure.max_seconds**_TOWARDS_LONGEST)
