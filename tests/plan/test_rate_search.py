"""The highest rate that meets a condition: which rates are measured, and the answer."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep import Goal, Sweep, workloads
from dtsweep.analysis.recommend import recommend
from dtsweep.analysis.study import Study
from dtsweep.plan.plan import policy_of
from dtsweep.plan.rate_search import RateSearch
from dtsweep.sweep.point import Point
from tests.measured import Machine

RATES = range(10, 650, 40)
SWEEP = Sweep(
    workload=workloads.Gpt(),
    kind="inference",
    axes={"replicas": [1, 2], "rate": [None, *RATES], "max_batch": [8]},
    goal=Goal(maximize="requests_per_s", where="request_p99_s <= 200ms"),
)


def latency_s(point: Point) -> float:
    """Of a queue whose replicas answer 250 requests per second each: 200 ms at 80 % of that."""
    if point.rate is None:
        return 0.004
    load = point.rate / (250 * point.workers)
    return 0.04 / (1 - load) if load < 1 else 60.0


def columns(point: Point) -> dict[str, Any]:
    names = ("latency_s", "step_mean_s", "step_p50_s", "step_p99_s")
    ends = {"": 1.0, "_low": 0.97, "_high": 1.03, "_error": 0.015}
    return {
        f"{name}{end}": latency_s(point) * times for name in names for end, times in ends.items()
    } | {"global_batch": None}


def machine() -> Machine:
    return Machine(SWEEP, lambda point: point.rate or 250.0 * point.workers, columns=columns)


def test_few_rates_are_measured_and_the_answer_is_the_highest_that_meets_the_limit() -> None:
    policy, sweep = policy_of(SWEEP), machine()
    assert isinstance(policy, RateSearch)
    rounds = sweep.finish(policy)
    searched = [point for one in rounds if one.is_search for point in one.points]
    # 16 rates in 4 or 5 halvings for each number of replicas, and the two closed loops.
    assert len(searched) == len(set(map(str, searched))) <= 2 * 5 + 2
    by_replicas = {
        workers: [p.rate for p in searched if p.workers == workers and p.rate] for workers in (1, 2)
    }
    assert {170.0, 210.0} <= {*by_replicas[1]} and {370.0, 410.0} <= {*by_replicas[2]}
    frame = policy._settle.frame(sweep.rows, {row["point_id"] for row in sweep.rows})
    study = Study(frame, question=SWEEP.question)
    (answer,) = recommend(study, SWEEP.goal)
    assert (answer.point["rate"], answer.point["workers"]) == (370, 2)


@pytest.mark.parametrize("status", ["timeout", "user_error"])
def test_a_rate_whose_trial_fails_is_too_high(status: str) -> None:
    sweep = machine()
    fails = sweep.columns
    sweep.columns = lambda point: (
        fails(point) | ({"status": status} if (point.rate or 0) > 100 else {})
    )
    rounds = sweep.finish(policy_of(SWEEP))
    searched = {point.rate for one in rounds if one.is_search for point in one.points}
    assert {90.0, 130.0} <= searched
