"""When a window ends: the one place that decides, and how ranks come to the same decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from dtsweep.sweep import Measure

LOOK_S = 0.2
"""Seconds between two looks, about: rare enough to cost nothing, often enough for `max_seconds`."""


class Store(Protocol):
    """The part of torch's key-value store that is used here."""

    def set(self, key: str, value: str) -> None:
        """Write a key."""

    def get(self, key: str) -> bytes:
        """Read a key, waiting until it is there."""

    def delete_key(self, key: str) -> bool:
        """Forget a key."""


def stop_reason(measure: Measure, *, steps: int, seconds: float) -> str | None:
    """Say why a window ends now, or None. A maximum beats a minimum."""
    if steps >= measure.max_steps:
        return "max_steps"
    if seconds >= measure.max_seconds:
        return "max_seconds"
    if steps >= measure.min_steps and seconds >= measure.min_seconds:
        return "enough"
    return None


def _stride(measure: Measure, period_s: float, period: int) -> int:
    """Sync periods from one look to the next: `LOOK_S`, but at least two looks in the shortest window."""
    if period_s <= 0:
        # Without a warm-up nothing is known: a long stride could outlast every limit.
        return 1
    shortest = max(measure.min_steps / period, measure.min_seconds / period_s)
    return max(1, int(min(LOOK_S / period_s, shortest / 2)))


class Window:
    """Counts the steps of one rank and says when to stop.

    Ranks stop at the same step without a collective: all know beforehand at which steps they look; rank 0
    writes what it decides at a look, every rank reads it at the next look and stops there. Where steps are
    a worker's own (asynchronous modes) each rank stops by its own clock instead.
    """

    def __init__(
        self,
        measure: Measure,
        *,
        rank: int,
        store: Store | None,
        period_s: float,
        period: int = 1,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Lay out the looks.

        Args:
            measure: the limits.
            rank: this rank; 0 decides.
            store: shared by the ranks, with keys of this window alone; None where each rank decides for itself.
            period_s: how long a sync period of steps took in the warm-up: the same number on all ranks; 0 is unknown.
            period: the window is a multiple of this many steps; one full period is always measured.
            now: seconds, monotonic.
        """
        self._measure, self._rank, self._store, self._now = measure, rank, store, now
        self._last_step = max(1, measure.max_steps // period) * period
        self._stride = period if store is None else _stride(measure, period_s, period) * period
        self._decided: str | None = None
        self.steps = 0
        self.reason = ""

    def __iter__(self) -> Iterator[int]:
        """Yield step after step; between two, decide whether there is another."""
        self._began = self._now()
        while not self.reason:
            yield self.steps
            self.steps += 1
            if self.steps >= self._last_step:
                self.reason = self._decided or "max_steps"
            elif self.steps % self._stride == 0:
                self.reason = self._look(self.steps // self._stride)

    def _look(self, number: int) -> str:
        previous = self._decided or ""
        if self._store is None or self._rank == 0:
            reason = stop_reason(self._measure, steps=self.steps, seconds=self._now() - self._began)
            if self._store is None:
                return reason or ""
            self._decided = self._decided or reason
            # Never an empty value: torch's store does not give it back.
            self._store.set(f"look/{number}", self._decided or "go on")
            return previous
        decided = self._store.get(f"look/{number - 1}").decode() if number > 1 else "go on"
        return "" if decided == "go on" else decided

    def forget(self) -> None:
        """Delete this window's keys; rank 0 calls it when all ranks have left the window."""
        if self._store is not None and self._rank == 0:
            for number in range(1, self.steps // self._stride + 1):
                self._store.delete_key(f"look/{number}")
