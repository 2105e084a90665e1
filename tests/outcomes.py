"""What ranks send, made up: steps of chosen lengths, and the row of the trial that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep import Measure, Sweep
from dtsweep.metrics.rank_result import Measured, RankFacts, RankResult, Steps
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of

SKIPPED = 2
"""Steps before the window, of a second each."""

PASS = MappingProxyType({"data_s": 0.0, "forward_s": 0.5, "backward_s": 0.25})
"""Phases that every mode marks, as shares of a step."""


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


class Sent(NamedTuple):
    """What one rank sends: where it runs, and how an attempt ended on it."""

    facts: RankFacts
    result: RankResult | None
    """None where it came up and never answered."""


def facts(**other: Any) -> RankFacts:
    """Where a rank runs, with what is to be otherwise."""
    usual: dict[str, Any] = {
        "node": "one",
        "pid": 7,
        "device": "EPYC",
        "device_uuid": None,
        "threads": 1,
        "niceness": 0,
        "machine": {"torch_version": "2.13.0", "cpu": "EPYC", "system": "Linux 6.1"},
    }
    return RankFacts(**usual | other)


def outcome(
    step_s: Sequence[float],
    *,
    turns: Sequence[tuple[bool, Sequence[float]]] = (),
    phases: Mapping[str, float] = PASS,
    columns: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    status: str = "ok",
    reason: str | None = None,
    where: RankFacts | None = None,
    **other: Any,
) -> Sent:
    """What a rank sends that took these times in its window.

    Args:
        step_s: the window's.
        turns: blocks after the window: whether they exchange, and their steps' times.
        phases: by column, the share that it has of each step.
        columns: of its steps, that are to be otherwise.
        status: how its attempt ended.
        reason: why it ended so.
        where: it runs; the usual place where nothing is said.
        other: fields of `Measured` that are to be otherwise; the window is as long as its steps.
    """
    usual: dict[str, Any] = {
        "stop_reason": "precise",
        "skipped_steps": SKIPPED,
        "window_steps": len(step_s),
        "window_s": sum(step_s),
        "memory_peak_bytes": 100,
    }
    steps = {**_steps(step_s, turns, phases), **columns}
    measured = Measured(steps=steps, **usual | other)
    return Sent(where or facts(), RankResult(status=status, reason=reason, measured=measured))


def _steps(
    step_s: Sequence[float],
    turns: Sequence[tuple[bool, Sequence[float]]],
    phases: Mapping[str, float],
) -> Steps:
    kinds = [
        "exchange" if exchanges else "no_exchange" for exchanges, times in turns for _ in times
    ]
    numbers = [block for block, (_, times) in enumerate(turns) for _ in times]
    after = [second for _, times in turns for second in times]
    seconds = np.array([1.0] * SKIPPED + [*step_s] + after)
    count, before = len(seconds), SKIPPED + len(step_s)
    return {
        "step": np.arange(count),
        "step_s": seconds,
        "start_s": np.cumsum(seconds) - seconds - SKIPPED,
        "part": np.array(["warmup"] * SKIPPED + ["window"] * len(step_s) + kinds),
        "block": np.array([-1] * before + numbers, dtype=int),
        "loss": np.where(np.arange(count) < before, np.linspace(2.0, 1.0, count), np.nan),
        **{name: seconds * share for name, share in phases.items()},
    }


def pairs(
    with_exchange: Sequence[float], without: Sequence[float]
) -> list[tuple[bool, list[float]]]:
    """Blocks of one step in turns: A B B A …, the i-th of both lists a pair."""
    turns: list[tuple[bool, list[float]]] = []
    for pair, (one, other) in enumerate(zip(with_exchange, without, strict=True)):
        both = [(True, [one]), (False, [other])]
        turns += both if pair % 2 == 0 else both[::-1]
    return turns


def by_rank(ranks: Sequence[Sent]) -> tuple[dict[int, RankFacts], dict[int, RankResult]]:
    """The facts of all these ranks, and the results of those that answered."""
    results = {rank: sent.result for rank, sent in enumerate(ranks) if sent.result is not None}
    return {rank: sent.facts for rank, sent in enumerate(ranks)}, results


def marked(
    ranks: Sequence[Sent], **fields: Any
) -> tuple[dict[int, RankFacts], dict[int, RankResult]]:
    """The facts and results by rank, their warm-up found."""
    _, point = _trial(len(ranks), fields)
    known, results = by_rank(ranks)
    return known, with_warmup_marked(point, results)


def row_of(
    ranks: Sequence[Sent], *, measure: Measure | None = None, **fields: Any
) -> dict[str, Any]:
    """The row of `trials` of a point with these fields, 4 samples a pass where nothing is said."""
    sweep, point = _trial(len(ranks), fields, measure)
    return trial_row(sweep, point, task_of(sweep, point), *marked(ranks, **fields))


def _trial(
    workers: int, fields: dict[str, Any], measure: Measure | None = None
) -> tuple[Sweep, Point]:
    settings = measure or Measure(repeats=1)
    sweep = Sweep(workload=Tokens(), axes={"workers": [workers]}, measure=settings)
    return sweep, Point(workers=workers, workload=Tokens(), **{"micro_batch": 4, **fields})
