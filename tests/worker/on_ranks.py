"""Trials on ranks of gloo, one after another in the same processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtsweep import Measure, Sweep
from dtsweep.metrics.rank_result import Measured, RankFacts
from dtsweep.metrics.rows import explaining_failure, trial_row, with_warmup_marked
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import RankContext, become_rank
from tests.ranks import results_of

Attempt = Callable[[RankContext, Task], Any]
Cases = Mapping[str, tuple[Measure, Point]]


@dataclass(frozen=True)
class Trials:
    """Results of all ranks."""

    sweeps: dict[str, Sweep]
    tasks: dict[str, Task]
    points: dict[str, Point]
    facts: dict[int, RankFacts]
    results: dict[str, dict[int, Any]]
    """By case and rank: what `attempt` gave."""

    def measured(self, case: str) -> list[Measured]:
        """What each rank measured."""
        ranks = [result.measured for result in self.results[case].values()]
        assert None not in ranks, self.failure(case)
        return ranks

    def failure(self, case: str) -> tuple[str, str | None]:
        """Status and reason of a trial."""
        return explaining_failure(self.results[case])

    def row(self, case: str) -> dict[str, Any]:
        """The row of a trial."""
        point = self.points[case]
        results = with_warmup_marked(point, self.results[case])
        return trial_row(self.sweeps[case], point, self.tasks[case], self.facts, results)


def window(steps: int, **fields: Any) -> Measure:
    """A window of so many steps, after two that warm up; a minute is the most that it may take."""
    usual: dict[str, Any] = {
        "half_width": None,
        "warmup_steps": 2,
        "min_seconds": 0,
        "max_seconds": 60,
    }
    return Measure(**{"min_steps": steps, "max_steps": steps, **usual, **fields})


def start_of(point: Point) -> dict[str, torch.Tensor]:
    """Weights with which a trial of `run_trials` at a point begins."""
    digest = hashlib.sha256(b"0/1").digest()
    torch.manual_seed(int.from_bytes(digest[:4], "big"))
    return {name: value.clone() for name, value in point.workload.build().state_dict().items()}


def run_trials(
    cases: Cases, *, attempt: Attempt = run_attempt, roles: Mapping[str, str] | None = None
) -> Trials:
    """Run all cases on as many ranks as their points have workers.

    Args:
        cases: limits and points by name.
        attempt: what a rank does for a case; it sends what this returns.
        roles: of tasks that are no trials.
    """
    points = {case: point for case, (_, point) in cases.items()}
    sweeps = {
        case: Sweep(workload=point.workload, axes={"workers": [point.workers]}, measure=measure)
        for case, (measure, point) in cases.items()
    }
    roles = roles or {}
    tasks = {
        case: task_of(sweeps[case], point, role=roles.get(case, "trial"))
        for case, point in points.items()
    }
    (workers,) = {point.workers for point in points.values()}
    given = {case: (task, points[case].workload) for case, task in tasks.items()}
    facts, results = zip(*results_of(_be_rank, attempt, given, workers=workers), strict=True)
    return Trials(
        sweeps,
        tasks,
        points,
        dict(enumerate(facts)),
        {case: {rank: own[case] for rank, own in enumerate(results)} for case in cases},
    )


def _be_rank(
    rank: int, attempt: Attempt, given: Mapping[str, tuple[Task, Any]]
) -> tuple[RankFacts, dict[str, Any]]:
    context = become_rank(rank, torch.device("cpu"), workload=None, own_variables=())
    results = {
        case: attempt(replace(context, workload=workload), task)
        for case, (task, workload) in given.items()
    }
    return context.facts, results
