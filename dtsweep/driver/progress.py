"""Progress of a run: a live line on a terminal, else lines on stderr."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dtsweep.errors import LABEL_SHOWN, SHOWN, one_line, shortened
from dtsweep.inference.forecast import MOST_ROUNDS
from dtsweep.plan.plan import Plan
from dtsweep.plan.trial import Row
from dtsweep.results.certificate import Certificate
from dtsweep.results.run_record import RunningTrial
from dtsweep.results.statuses import FINE
from dtsweep.sweep.modes import latency_column
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import CHOSEN_FIELDS, is_left_out
from dtsweep.sweep.values import value_of_axis
from dtsweep.text import count_of, duration, format_number, format_rate, plain

_LONG_S = 15.0
"""Seconds after which the live line names an attempt; most such attempts wait for nodes."""

_REPEATED = 3
"""Number of trials with one status of a failure at which a line says what to do."""


class _Running(NamedTuple):
    """An attempt under way."""

    point: Point
    since: float
    """Time at which it was handed out, by the monotonic clock."""
    is_canary: bool


class Progress:
    """Counts trials as they end."""

    def __init__(self, *, axes: Iterable[str], console: Console | None = None) -> None:
        self._axes = tuple(axes)
        self.total = 0
        # In a notebook lines are the output of a cell, as those of a script are.
        self._console = console or Console(stderr=True, highlight=False, force_jupyter=False)
        self._counts = Counter[str]()
        self._ended, self._first_end = 0, 0.0
        """Number of run trials that have ended, and the end of the first by the monotonic clock."""
        self._began = time.monotonic()
        self._has_begun = False
        self._running: dict[str, _Running] = {}
        """Trials under way by id."""
        self._live: Live | None = None
        self._round = ""
        self._certificate: Certificate | None = None
        self._planned_s: float | None = None
        """Expected time of the batch that was planned last."""
        self._planned_at = self._began
        self._changed: Callable[[], object] = lambda: None

    def __enter__(self) -> Progress:
        """Begin to show the live line."""
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._line,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, *, by_words: bool = False) -> None:
        """Print a line; on a terminal unbroken, so that copied text stays whole."""
        self._console.print(plain(text), soft_wrap=not (by_words and self._console.is_terminal))

    def begin_round(self, plan: Plan) -> None:
        """Say what is open at the begin of a round; a grid has no rounds."""
        self._planned_s, self._planned_at = plan.duration.middle_s, time.monotonic()
        self._changed()
        current = plan.last_round
        if plan.question is None or current is None:
            return
        self._certificate = current.certificate
        points, name = "point", f"round {current.repeat}"
        if current.repeat > 1:
            points = "contender"
        elif current.is_search:
            name = "search"
        self._round = f"{name}: {count_of(len(current.points), points)}"
        each_s, left = plan.duration.middle_s, current.rounds_left
        line = f"{self._round}, about {duration(each_s)}"
        if left == 1:
            line += "; it should decide"
        elif left is not None and math.isinf(left):
            line += f"; over {MOST_ROUNDS} such rounds may be needed"
        elif left is not None:
            line += f"; about {left:g} such rounds are needed, {duration(left * each_s)}"
        self.say(line)

    def end_rounds(self, plan: Plan) -> None:
        """Keep what a search says at its end; a grid says nothing."""
        if plan.last_round is not None and plan.last_round.certificate is not None:
            self._certificate = plan.last_round.certificate

    def listen(self, changed: Callable[[], object]) -> None:
        """Have a function called when an attempt begins or ends, or a round begins."""
        self._changed = changed

    def began(self, trial_id: str, point: Point, *, is_canary: bool = False) -> None:
        """Note that an attempt was handed out; `over` that it has ended."""
        self._running[trial_id] = _Running(point, time.monotonic(), is_canary)
        self._changed()

    def over(self, trial_id: str) -> None:
        """Note that it has ended, in whatever way."""
        self._running.pop(trial_id, None)
        self._changed()

    def standing(self) -> dict[str, Any]:
        """State of the run, as fields of its record (`RunRecord`); from any thread."""
        now, unix_time = time.monotonic(), time.time()
        running = [
            RunningTrial(
                trial_id=trial_id,
                name=short_name(attempt.point, self._axes),
                since=unix_time - (now - attempt.since),
                is_canary=attempt.is_canary,
            )
            for trial_id, attempt in list(self._running.items())
        ]
        return {
            "total": self.total,
            "statuses": dict(self._counts),
            "running": tuple(running),
            "expected_left_s": self._expected_left_s(now),
            "certificate": self._certificate,
        }

    def _expected_left_s(self, now: float) -> float | None:
        """Seconds that the rest should take: by the trials that have ended, else as planned."""
        if (left_s := self._left_by_rate_s(now)) is not None:
            return left_s
        if self._planned_s is None or now - self._planned_at >= self._planned_s:
            return None
        return self._planned_s - (now - self._planned_at)

    def _left_by_rate_s(self, now: float) -> float | None:
        """Seconds that the rest takes at the rate so far; None before the second trial has ended.

        The first one waited for a start.
        """
        if self._ended < 2:
            return None
        each_s = (now - self._first_end) / (self._ended - 1)
        return each_s * max(0, self.total - sum(self._counts.values()))

    def ended(self, point: Point, row: Row, *, again: bool = False) -> None:
        """Name an attempt that ended; count its trial, unless it is measured again."""
        if not again:
            self._counts[row["status"]] += 1
            if row["status"] != "skipped":
                if not self._ended:
                    self._first_end = time.monotonic()
                self._ended += 1
        name = short_name(point, self._axes)
        rate = row.get("samples_per_s")
        doubt = row.get("implausible")
        if row["status"] == "ok":
            statistic = "median"
            if latency_column(row["semantics"], period=point.period) == "step_mean_s":
                statistic = "mean"
            outcome = f"{statistic} {format_number(row['latency_s'] * 1e3)} ms/step"
            if rate is None:
                outcome += f"; samples/s unknown: {row.get('samples_reason')}"
            else:
                outcome += f", {format_rate(rate)} samples/s"
            outcome += _training_in_words(row)
            if doubt:
                outcome += f"; implausible: {doubt}"
        else:
            outcome = f"{row['status']}: {shortened(str(row['reason']), SHOWN)}"
            if again:
                outcome += "; measured again"
        self._has_begun = True
        repeat = ""
        if row["repeat"] > 1:
            repeat = f" repeat {row['repeat']}"
        self.say(
            f"[{sum(self._counts.values())}/{self.total}] {name}{repeat}: {outcome}", by_words=True
        )
        status = row["status"]
        if not again and status not in FINE and self._counts[status] == _REPEATED:
            self.say(
                f"{_REPEATED} trials have ended as {status}. Ctrl-C stops the run and keeps its "
                "results. After a correction, `--rerun failed` measures them again.",
                by_words=True,
            )

    def canary(self, point: Point, row: Row) -> None:
        """Name a canary that ended; it is none of the trials that are counted."""
        self._has_begun = True
        if row["status"] == "ok":
            ended = f"{format_number(row['latency_s'] * 1e3)} ms/step"
        else:
            ended = f"{row['status']}: {row['reason']}"
        self.say(f"canary workers={point.workers}: {ended}", by_words=True)

    def _line(self) -> Text:
        now = time.monotonic()
        parts = [f"{sum(self._counts.values())}/{self.total} trials"]
        failed = sum(count for status, count in self._counts.items() if status not in FINE)
        if failed:
            parts.append(f"{failed} failed")
        if self._round:
            parts.append(self._round)
        # The remaining time comes before what the edge of the terminal may cut off.
        left_s = self._left_by_rate_s(now)
        if left_s is None:
            parts.append(f"{duration(now - self._began)} so far")
        else:
            parts.append(f"about {duration(left_s)} left")
        # The one that was handed out first: the others wait for less.
        first = next(iter(self._running.values()), None)
        if first is not None and self._has_begun and now - first.since >= _LONG_S:
            name = short_name(first.point, self._axes)
            parts.append(f"{name} for {duration(now - first.since)}")
        if not self._has_begun:
            parts.append("starting the first session")
        line = plain("  ".join(parts))
        line.overflow = "ellipsis"
        line.no_wrap = True
        return line


def short_name(point: Point, axes: Iterable[str]) -> str:
    """Name a point by what is swept, and by the settings of its mode and its compression.

    >>> short_name(Point(workers=2, sync="local_sgd"), ["sync", "workers"])
    'sync=local_sgd workers=2 sync_period=8'
    >>> short_name(Point(learning_rate=0.012345678901234567), ["learning_rate"])
    'learning_rate=0.0123457'
    """
    names_read = [name for name in point.reads if not is_left_out(name, getattr(point, name))]
    names = [*axes, *(name for name in names_read if name not in axes)]
    return one_line(
        " ".join(
            f"{name.removeprefix('workload.')}={_short(value_of_axis(point, name))}"
            for name in names
            if name in point.reads or name not in CHOSEN_FIELDS
        )
    )


def _short(value: object) -> str:
    # A float that was drawn has up to 17 digits.
    if isinstance(value, float):
        return f"{value:g}"
    return shortened(str(value), LABEL_SHOWN)


def _training_in_words(row: Row) -> str:
    """Say how an attempt trained to a target; empty where it did not."""
    if row.get("target_loss") is None:
        return ""
    seconds = f"{format_number(row['time_to_loss_s'], digits=3)} s"
    if row["is_censored"]:
        return f"; loss {row['final_loss']:.4g} after {seconds}: not at {row['target_loss']:g}"
    return f"; loss {row['target_loss']:g} after {seconds}"
