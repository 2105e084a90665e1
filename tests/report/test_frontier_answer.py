"""The answer to the question which points are on the frontier, in words."""

from __future__ import annotations

from dtsweep import Sweep, workloads
from dtsweep.analysis.frontier import frontier
from dtsweep.analysis.study import Study
from dtsweep.plan.plan import policy_of
from dtsweep.report.advice import frontier_answer
from dtsweep.report.remarks import Remark
from dtsweep.results.store import trials_of_rows
from dtsweep.sweep.values import column_types
from tests.measured import Machine


def answer(*, launches: int, max_launches: int, noise: float) -> list[Remark]:
    """Answer after so many rounds of a sweep."""
    sweep = Sweep(
        workload=workloads.Gpt(), axes={"micro_batch": [1, 4, 16]}, max_launches=max_launches
    )
    machine = Machine(sweep, lambda point: 100.0 * point.micro_batch**0.5, noise=noise)
    for _ in range(launches):
        machine.measure(policy_of(sweep).rounds(machine.points, machine.rows)[-1])
    types = column_types(sweep.workload)
    study = Study(trials_of_rows(machine.rows, workload_types=types))
    return frontier_answer(study, frontier(study))


def test_where_all_points_are_on_the_frontier_none_is_open() -> None:
    (only,) = answer(launches=2, max_launches=3, noise=0.001)
    assert only.text == (
        "Frontier: 3 of 3 points on it, 0 open; each within 3 % (95 % confidence each)."
    )


def test_a_run_that_ended_early_goes_on_without_another_limit() -> None:
    first, step = answer(launches=2, max_launches=6, noise=0.5)
    assert first.numbers["launches"] == 2
    assert step.code == "frontier_again"
    step = answer(launches=2, max_launches=2, noise=0.9)[1]
    assert (step.code, step.numbers["max_launches"]) == ("frontier_goes_on", 4)
