"""Steps of a window: rank 0 asks the `Rule` at some of them, the others read its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dtsweep.measure.statistics import Series
from dtsweep.measure.stopping import Rule
from dtsweep.sweep.settings import Measure

_LOOK_S = 0.2
"""Approximate seconds between two looks at the clock: rare enough for no cost, within limits."""

_LOOK_SHARE = 0.002
"""Share of the window that looks at the interval, which take about a millisecond each, may take."""


class Store(Protocol):
    """The part of torch's key-value store that is used here."""

    def set(self, key: str, value: str) -> None:
        """Write a key."""

    def get(self, key: str) -> bytes:
        """Read a key, waiting until it is there."""

    def check(self, keys: list[str]) -> bool:
        """True if all keys are there."""

    def delete_key(self, key: str) -> bool:
        """Forget a key."""


def _stride(measure: Measure, period_s: float, period: int) -> int:
    """Sync periods between two looks at the clock: `_LOOK_S`, but two looks in any window."""
    if period_s <= 0:
        # Without a warm-up nothing is known: a long stride could outlast every limit.
        return 1
    shortest = max(measure.min_steps / period, measure.min_seconds / period_s)
    return max(1, int(min(_LOOK_S / period_s, shortest / 2)))


@dataclass(frozen=True, kw_only=True)
class Peers:
    """A rank among those that measure the same window."""

    rank: int = 0
    """Rank 0 decides."""

    store: Store | None = None
    """Shared by the ranks, with keys of this window alone; None for one rank."""

    in_step: bool = True
    """True if a step is one of all ranks."""


class Window:
    """Counts the steps of one rank and says when to stop.

    Where ranks step together they stop at the same step without a collective: all know beforehand
    at which steps they look; rank 0 writes what it decides at a look, every rank reads it at the
    next look and stops there. Where steps are a worker's own (asynchronous modes) the others stop
    when they see that rank 0 has.
    """

    def __init__(
        self,
        measure: Measure,
        rule: Rule,
        series: Callable[[], Series],
        *,
        peers: Peers = Peers(),  # frozen
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Lay out the looks.

        Args:
            measure: the limits.
            rule: decides, on rank 0; the window is a multiple of its period, and at least one. By
                how long a period takes the looks at the clock are laid out.
            series: the window's step times so far, in seconds.
            peers: this rank and the others.
            now: seconds, monotonic.
        """
        self._rule = rule
        self._series = series
        self._peers = peers
        self._now = now
        self._last_step = max(1, measure.max_steps // rule.period) * rule.period
        self._stride = _stride(measure, rule.period_s, rule.period) * rule.period
        self._decided: str | None = None
        self._looks, self._looked_s = 0, 0.0
        self.steps = 0
        self.reason = ""
        self.has_ended = False
        """True if the loop had no more steps."""

    def __iter__(self) -> Iterator[int]:
        """Yield step after step; between two, decide whether there is another."""
        self._began = self._now()
        interval_at = self._rule.next_look(0)
        clock_at = self._stride
        while not self.reason:
            yield self.steps
            if self.reason:
                return
            self.steps += 1
            if self.steps >= self._last_step:
                self.reason = self._decided or "max_steps"
            elif self.steps in (interval_at, clock_at):
                self._looks += 1
                self.reason = self._look(sees_interval=self.steps == interval_at)
                interval_at = self._rule.next_look(self.steps)
                clock_at = (self.steps // self._stride + 1) * self._stride
        if self._peers.store is not None and self._peers.rank == 0 and not self._peers.in_step:
            self._peers.store.set("stop", self.reason)

    def _look(self, *, sees_interval: bool) -> str:
        """Reason to stop here; empty to go on."""
        store = self._peers.store
        if store is None:
            return self._decide(sees_interval=sees_interval) or ""
        if not self._peers.in_step:
            # By rank 0's decision, or by this rank's own limit.
            if self._peers.rank > 0 and store.check(["stop"]):
                return store.get("stop").decode()
            return self._decide(sees_interval=sees_interval and self._peers.rank == 0) or ""
        if self._peers.rank == 0:
            previous = self._decided or ""
            self._decided = self._decided or self._decide(sees_interval=sees_interval)
            # Never an empty value: torch's store does not give it back.
            store.set(f"look/{self._looks}", self._decided or "go on")
            return previous
        decided = "go on"
        if self._looks > 1:
            decided = store.get(f"look/{self._looks - 1}").decode()
        if decided == "go on":
            return ""
        return decided

    def _decide(self, *, sees_interval: bool) -> str | None:
        seconds = self._now() - self._began
        reason = self._rule.limit(steps=self.steps, seconds=seconds)
        # Where steps are short, not at every look: what it takes would show in the figures.
        if reason or not sees_interval or self._looked_s > _LOOK_SHARE * seconds:
            return reason
        reason = self._rule.look(self._series(), seconds=seconds)
        self._looked_s += self._now() - self._began - seconds
        return reason

    def end(self) -> None:
        """End within a step, which does not count: there are no more of them."""
        self.has_ended = True
        self._stop_others("ended")
        self.reason = self._decided or "ended"

    def give_up(self) -> None:
        """Let the others stop at their next look: rank 0 takes no more steps."""
        self._stop_others("gave_up")

    def _stop_others(self, reason: str) -> None:
        if self._peers.store is not None and self._peers.rank == 0 and not self.reason:
            self._peers.store.set(f"look/{self._looks + 1}", reason)

    def forget(self) -> None:
        """Delete this window's keys; rank 0 calls it when all ranks have left the window."""
        if self._peers.store is not None and self._peers.rank == 0:
            looks = [f"look/{number}" for number in range(1, self._looks + 1)]
            for key in looks if self._peers.in_step else ["stop"]:
                self._peers.store.delete_key(key)
