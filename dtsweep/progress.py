"""Progress of a run on stderr: one live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dtsweep.point import Point
from dtsweep.sync import MODES


class Progress:
    """Counts trials as they end."""

    def __init__(self, *, total: int, console: Console | None = None) -> None:
        """Expect so many trials."""
        self._console = console or Console(stderr=True, highlight=False)
        self._total, self._counts = total, Counter[str]()
        self._began = time.monotonic()
        self._best: tuple[float, str] | None = None
        self._last = "starting the first session"
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        """Begin to show the live line."""
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._line, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(Text(text), soft_wrap=True)

    def ended(self, point: Point, row: Mapping[str, Any]) -> None:
        """Count an attempt, and name it."""
        self._counts[row["status"]] += 1
        name = short_name(point)
        rate = row.get("samples_per_s")
        if row["status"] == "ok" and (self._best is None or rate > self._best[0]):
            self._best = (rate, name)
        self._last = name
        if row["status"] == "ok":
            what = f"{row['step_p50_s'] * 1e3:.4g} ms/step, {rate:.4g} samples/s"
        else:
            what = f"{row['status']}: {row['reason']}"
        if self._live is None or row["status"] not in ("ok", "skipped"):
            repeat = f" repeat {row['repeat']}" if row["repeat"] > 1 else ""
            self.say(f"[{sum(self._counts.values())}/{self._total}] {name}{repeat}: {what}")

    def _line(self) -> Text:
        done = sum(self._counts.values())
        seconds = time.monotonic() - self._began
        failed = sum(count for status, count in self._counts.items() if status not in ("ok", "skipped"))
        parts = [f"{done}/{self._total} trials", f"{failed} failed" if failed else ""]
        if self._best is not None:
            parts.append(f"best {self._best[0]:.4g} samples/s ({self._best[1]})")
        if done:
            parts.append(f"about {words(seconds / done * max(0, self._total - done))} left")
        parts.append(f"last: {self._last}" if done else self._last)
        return Text("  ".join(part for part in parts if part), overflow="ellipsis", no_wrap=True)


def short_name(point: Point) -> str:
    """Name a point in a few words.

    >>> short_name(Point(workers=2, sync="local_sgd"))
    'local_sgd sync_period=8, 2 workers x 32 x 1'
    """
    own = [f"{name}={getattr(point, name)}" for name in MODES[point.sync].reads]
    return f"{' '.join([point.sync, *own])}, {point.workers} workers x {point.micro_batch} x {point.accumulation}"


def words(seconds: float) -> str:
    """Say a length of time.

    >>> words(200)
    '3 min'
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
