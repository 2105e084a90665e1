"""A workload in which no step ends for long is named with its method, line and step."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from dtsweep import Sweep
from dtsweep.session.attempt import run_attempt
from dtsweep.session.in_process import only_rank
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from dtsweep.worker.step_watch import StepWatch
from tests.driver.test_in_process_run import QUICK, Line


@dataclass(frozen=True)
class Waits(Line):
    """Stands in its fourth loss until the watch has spoken."""

    calls: ClassVar[list[int]] = []

    def loss(self, model: Any, batch: Any) -> Any:
        self.calls.append(1)
        if len(self.calls) == 4:
            WAIT.wait(60)
        return super().loss(model, batch)


WAIT = threading.Event()


@pytest.fixture
def lines() -> list[str]:
    return []


def test_a_loss_that_blocks_is_named_with_its_line_and_step(lines: list[str]) -> None:
    seconds = [0.0]

    def now() -> float:
        """Time goes on while the loss stands, at each look."""
        if len(Waits.calls) == 4 and not WAIT.is_set():
            seconds[0] += 4
        return seconds[0]

    def say(line: str) -> None:
        lines.append(line)
        WAIT.set()

    WAIT.clear()
    workload = Waits()
    sweep = Sweep(workload=workload, axes={"workers": [1]}, measure=QUICK)
    task = task_of(sweep, Point(workload=workload))
    with only_rank(sweep) as rank, StepWatch(say, now=now, look_every_s=0.05) as watch:
        result = run_attempt(replace(rank, watch=watch), task)
    assert result.status == "ok"
    line = Waits.loss.__code__.co_firstlineno + 3
    assert len(lines) == 1
    assert re.fullmatch(
        rf"no step has ended for 12 s: in loss \(test_step_watch\.py:{line}\), in step \d", lines[0]
    )


def watching(lines: list[str], clock: Any, *, place: str | None) -> StepWatch:
    """A watch that looks when it is told to."""
    return StepWatch(
        lines.append, now=lambda: clock.seconds, look_every_s=3600, place_of=lambda _: place
    )


def test_lines_come_seldom_and_again_for_another_step(lines: list[str]) -> None:
    clock, steps = SimpleNamespace(seconds=0.0), SimpleNamespace(steps_begun=0)
    with watching(lines, clock, place="in batch (net.py:7)") as watch:
        watch.begin()
        watch.follow(steps)
        for begun in (0, 3):
            steps.steps_begun = begun
            watch.look()
            for _ in range(400):
                clock.seconds += 1
                watch.look()
    assert lines == [
        f"no step has ended for {seconds} s: in batch (net.py:7), {step}"
        for step in ("before the first step", "in step 2")
        for seconds in (10, 60, 300)
    ]


def test_a_rank_that_waits_for_others_is_not_named(lines: list[str]) -> None:
    clock = SimpleNamespace(seconds=0.0)
    with watching(lines, clock, place=None) as watch:
        watch.begin()
        clock.seconds = 100
        watch.look()
    assert lines == []
