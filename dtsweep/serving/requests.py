"""Arrivals of requests, their ends, and the end of a window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dtsweep.measure.statistics import Series, quantile_interval, reported_half_width
from dtsweep.measure.stopping import Rule
from dtsweep.sweep.settings import P99_FROM, Measure

LONGEST_S = 600.0
"""Limit of a window that has too few requests for a 99th percentile at `max_seconds`."""

_LATE_SHARE = 0.03
"""Mean delay of a client, as a share of the mean latency, from which on it is flagged."""


def arrival_times(rate: float, *, until_s: float, seed: int) -> Series:
    """Seconds at which requests of a Poisson process arrive, before `until_s`.

    A longer schedule begins with the shorter one. At another rate the gaps are the same times a
    factor, so that rates are compared on equal luck.

    Args:
        rate: requests per second.
        until_s: length of the schedule in seconds.
        seed: of the gaps.
    """
    expected = rate * until_s
    # Ten standard deviations more than are expected.
    count = math.ceil(expected + 10 * math.sqrt(expected) + 20)
    gaps = np.random.default_rng(seed).standard_exponential(count)
    times: Series = np.cumsum(gaps) / rate
    return times[times < until_s]


def longest_window_s(measure: Measure, *, rate: float) -> float:
    """Seconds of a window, at most: at a low rate a 99th percentile takes over `max_seconds`."""
    return max(measure.max_seconds, min(LONGEST_S, 1.5 * P99_FROM / rate))


@dataclass(frozen=True, kw_only=True)
class ReplicaAnswer:
    """One message of a replica about a request; each token is one, where a model makes several."""

    rank: int
    """Rank whose resources the replica uses."""

    waited_s: float
    """From the request's coming to the replica until its batch began."""

    served_s: float
    """From then until this answer was made."""

    memory_bytes: int
    """Highest memory of the replica so far."""


class Requests:
    """Requests in the order of their arrival, and the window among them.

    Arrays are (requests,) seconds from the client's start, nan where unknown.
    """

    def __init__(self, arrival_s: Series, *, window_at: float) -> None:
        """Know of none but when it arrives; the window begins at a second."""
        self.arrival_s = arrival_s
        self.window_at = window_at
        count = len(arrival_s)
        unknown = np.full(count, np.nan)
        self.sent_s = unknown.copy()
        self.first_s = unknown.copy()
        self.last_s = unknown.copy()
        """Times at which it was sent, and its first and its latest answer came."""
        self.answered_s = unknown.copy()
        self.waited_s = unknown.copy()
        """Time at which it had all answers, and its wait in its replica."""
        self.forward_s = unknown.copy()
        self.served_s = unknown.copy()
        """Service of its batch until its first, and until its latest output."""
        self.answers = np.zeros(count, dtype=np.int64)
        self.is_lost = np.zeros(count, dtype=np.bool_)
        self.error: BaseException | None = None
        """Of the first one that was lost."""
        self.memory_bytes: dict[int, int] = {}
        """Highest memory of a replica, by the rank whose resources it uses."""
        self.first = int(np.searchsorted(arrival_s, window_at))
        self.scheduled = count
        """Number of the window's first request, and of those that arrive before its end."""
        self.window_s = 0.0
        self.stop_reason = ""
        """Length of the window, and the rule that ended it."""

    @property
    def window(self) -> slice:
        """Requests that arrive in the window."""
        return slice(self.first, self.scheduled)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Requests of the window that were answered, lost, and late."""
        is_answered = np.isfinite(self.latency_s[self.window])
        is_lost = self.is_lost[self.window]
        return int(is_answered.sum()), int(is_lost.sum()), int((~is_answered & ~is_lost).sum())

    @property
    def latency_s(self) -> Series:
        """From the scheduled arrival to the last answer; nan for one that was not answered."""
        latency_s: Series = self.answered_s - self.arrival_s
        return latency_s

    def note(self, number: int, answer: ReplicaAnswer, *, at_s: float) -> None:
        """Take an answer that came at this time."""
        if not self.answers[number]:
            self.first_s[number] = at_s
            self.forward_s[number] = answer.served_s
        self.answers[number] += 1
        self.last_s[number] = at_s
        self.waited_s[number] = answer.waited_s
        self.served_s[number] = answer.served_s
        known = self.memory_bytes.get(answer.rank, 0)
        self.memory_bytes[answer.rank] = max(known, answer.memory_bytes)

    def end(self, number: int, error: BaseException | None = None) -> None:
        """Take that a request has all of its answers, or that it is lost."""
        if error is None:
            self.answered_s[number] = self.last_s[number]
        else:
            self.is_lost[number] = True
            self.error = self.error or error

    @property
    def is_client_late(self) -> bool:
        """True if the client's own delay was a share of the window's latency worth a flag."""
        if np.isnan(self.latency_s[self.window]).all():
            return False
        late_s = np.nanmean((self.sent_s - self.arrival_s)[self.window])
        return bool(late_s > _LATE_SHARE * np.nanmean(self.latency_s[self.window]))

    def token_times(self) -> tuple[float | None, float | None]:
        """Mean seconds from arrival to the first token, and from a token to the next.

        Of the window's requests with several; None without any.
        """
        several = np.isfinite(self.latency_s) & (self.answers > 1)
        several[: self.first] = several[self.scheduled :] = False
        if not several.any():
            return None, None
        first_s = (self.first_s - self.arrival_s)[several]
        spans_s = (self.answered_s - self.first_s)[several]
        return float(first_s.mean()), float(spans_s.sum() / (self.answers[several] - 1).sum())


class WindowEnd:
    """Says when a window ends: at its limits, or when mean and p99 are known well enough."""

    def __init__(self, measure: Measure, *, rate: float) -> None:
        """Begin a window of requests at this rate."""
        self._measure = measure
        self._rule = Rule(measure, period_s=1 / rate)
        self._next_look = self._rule.next_look(0)

    def reason(self, requests: Requests, *, now_s: float) -> str | None:
        """Rule that ends the window now, or None; seconds as those of the requests."""
        seconds = now_s - requests.window_at
        arrived = slice(requests.first, int(np.searchsorted(requests.arrival_s, now_s)))
        latency_s = requests.latency_s[arrived]
        reason = self._rule.limit(steps=len(latency_s), seconds=seconds)
        is_short = len(latency_s) < P99_FROM and seconds < LONGEST_S
        if reason and not (reason == "max_seconds" and is_short):
            return reason
        # Only requests before the first one that is open: later ones that are over were quick.
        is_open = np.isnan(latency_s)
        count = int(np.argmax(is_open)) if is_open.any() else len(is_open)
        within, least = self._measure.half_width, max(self._next_look, self._measure.min_steps)
        if within is None or count < least or seconds < self._measure.min_seconds:
            return None
        self._next_look = self._rule.next_look(count)
        return "precise" if _is_known(latency_s[:count], within=within) else None


def _is_known(latency_s: Series, *, within: float) -> bool:
    """True if the intervals of mean and p99 are as narrow as this share of them, to each side."""
    half_s = reported_half_width(latency_s)
    interval = quantile_interval(latency_s, 0.99)
    if half_s is None or interval is None:
        return False
    p99_half_s = (interval[1] - interval[0]) / 2
    p99_s = float(np.quantile(latency_s, 0.99))
    return half_s <= within * float(latency_s.mean()) and p99_half_s <= within * p99_s
