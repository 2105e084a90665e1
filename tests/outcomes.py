"""What ranks send, made up: steps of chosen lengths, and the row of the trial that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dtsweep import Measure, Sweep
from dtsweep.metrics.rows import settled, trial_row
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of

SKIPPED = 2
"""Steps before the window, of a second each."""

PASS = MappingProxyType({"data_s": 0.0, "forward_s": 0.5, "backward_s": 0.25})
"""Phases that every mode marks, as shares of a step."""

Outcomes = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Tokens:
    """A workload by its fields alone: nothing here trains."""

    width: int = 8
    words: tuple[str, ...] = ("a", "b")

    tokens_per_sample = 10

    def build(self) -> Any:
        raise AssertionError

    def batch(self, samples: range, device: Any) -> Any:
        raise AssertionError

    def loss(self, model: Any, batch: Any) -> Any:
        raise AssertionError


def facts(**other: Any) -> dict[str, Any]:
    """What a rank says of itself when it comes up."""
    machine = {"torch_version": "2.13.0", "cpu": "EPYC", "system": "Linux 6.1"}
    return {
        "node": "one",
        "pid": 7,
        "device": "EPYC",
        "device_uuid": None,
        "threads": 1,
        "niceness": 0,
        "machine": machine,
        **other,
    }


def outcome(
    step_s: Sequence[float],
    *,
    turns: Sequence[tuple[bool, Sequence[float]]] = (),
    phases: Mapping[str, float] = PASS,
    window_s: float | None = None,
    **other: Any,
) -> dict[str, Any]:
    """What a rank sends that took these times in its window.

    Args:
        step_s: the window's.
        turns: blocks after the window: whether they exchange, and their steps' times.
        phases: by column, the share that it has of each step.
        window_s: the sum of its steps where nothing is said.
        other: what is to be otherwise.
    """
    blocks = [exchanges for exchanges, times in turns for _ in times]
    seconds = np.array([1.0] * SKIPPED + [*step_s] + [second for _, times in turns for second in times])
    count = len(seconds)
    steps = {
        "step": np.arange(count),
        "step_s": seconds,
        "start_s": np.cumsum(seconds) - seconds - SKIPPED,
        "part": np.array(
            ["warmup"] * SKIPPED
            + ["window"] * len(step_s)
            + ["exchange" if exchanges else "no_exchange" for exchanges in blocks]
        ),
        "block": np.array(
            [-1] * (count - len(blocks)) + [block for block, (_, times) in enumerate(turns) for _ in times], dtype=int
        ),
        "loss": np.where(np.arange(count) < count - len(blocks), np.linspace(2.0, 1.0, count), np.nan),
        **{name: seconds * share for name, share in phases.items()},
    }
    return {
        "status": "ok",
        "reason": None,
        "stop_reason": "precise",
        "hard_skip": SKIPPED,
        "window_steps": len(step_s),
        "window_s": sum(step_s) if window_s is None else window_s,
        "memory_peak_bytes": 100,
        "memory_left_bytes": 1,
        "device_bytes": 1000,
        "flags": [],
        "facts": facts(),
        "steps": steps,
        **other,
    }


def marked(outcomes: Sequence[dict[str, Any]], **fields: Any) -> Outcomes:
    """The outcomes by rank, their warm-up found."""
    sweep, point = _trial(len(outcomes), fields)
    return dict(settled(sweep, task_of(sweep, point), dict(enumerate(outcomes))))  # type: ignore[arg-type]  # dicts


def row_of(outcomes: Sequence[dict[str, Any]], *, measure: Measure | None = None, **fields: Any) -> dict[str, Any]:
    """The row of `trials` of a point with these fields, 4 samples a pass where nothing is said."""
    sweep, point = _trial(len(outcomes), fields, measure)
    task = task_of(sweep, point)
    return trial_row(sweep, task, settled(sweep, task, dict(enumerate(outcomes))))


def _trial(workers: int, fields: dict[str, Any], measure: Measure | None = None) -> tuple[Sweep, Point]:
    sweep = Sweep(workload=Tokens(), axes={"workers": [workers]}, measure=measure or Measure())
    return sweep, Point(workers=workers, workload=Tokens(), **{"micro_batch": 4, **fields})
