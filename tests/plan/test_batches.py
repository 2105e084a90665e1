"""Plans of a run whose policy asks for rounds, from made-up rows; no Ray."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Measure, Sweep, workloads
from dtsweep.metrics.rows import point_row
from dtsweep.plan.batches import Batches, columns_read
from dtsweep.plan.plan import PLANNED_BY, Plan
from dtsweep.plan.trial import Trial
from dtsweep.provenance.versions import versions
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.axes import candidates
from tests.rounds import BestAgain

SWEEP = Sweep(
    workload=workloads.Gpt(), axes={"micro_batch": [1, 2, 4]}, measure=Measure(min_steps=5)
)


def row_of(trial: Trial, *, status: str = "ok", **more: Any) -> dict[str, Any]:
    """A row of a trial: the larger its micro-batch, the higher the rate."""
    return {
        **{column.name: None for column in TRIALS},
        **point_row(SWEEP, trial.point),
        **versions(),
        **{"trial_id": trial.trial_id, "repeat": trial.repeat, "attempt_id": "a"},
        **{"role": "trial", "harness": "ray", "status": status},
        **{"samples_per_s": 10.0 * trial.point.micro_batch, **more},
    }


def rows_of(trials: Iterable[Trial], **more: Any) -> list[dict[str, Any]]:
    return [row_of(trial, **more) for trial in trials]


def batches_of(
    stored: Sequence[dict[str, Any]] = (),
    *,
    rerun: str | None = None,
    launches: int = 2,
    sweep: Sweep = SWEEP,
) -> Batches:
    policy = BestAgain(sweep=sweep, launches=launches)
    return Batches(sweep, candidates(sweep), stored, rerun=rerun, policy=policy)


def asked(plan: Plan) -> list[tuple[int, int]]:
    """Repeat and micro-batch of the trials that are to run, sorted."""
    return sorted((trial.repeat, trial.point.micro_batch) for trial in plan.to_run)


ALL = [(1, 1), (1, 2), (1, 4)]


def all_rows(launches: int) -> list[dict[str, Any]]:
    """Rows of a run that measured this many launches of the best point."""
    batches = batches_of(launches=launches)
    rows: list[dict[str, Any]] = []
    while trials := batches.next(rows).to_run:
        rows += rows_of(trials)
    return rows


def test_a_round_follows_the_rows_of_the_one_before_with_its_own_settings() -> None:
    batches = batches_of(launches=3)
    first = batches.next()
    assert asked(first) == ALL
    rows = rows_of(first.to_run)
    second = batches.next(rows)
    assert asked(second) == [(2, 4)]
    assert second.last_round is not None
    assert second.last_round.repeat == 2
    assert [trial.measure for trial in second.to_run] == [Measure(min_steps=6)]
    rows += rows_of(second.to_run)
    third = batches.next(rows)
    assert asked(third) == [(3, 4)]
    assert asked(batches.next([*rows, *rows_of(third.to_run)])) == []


def test_a_run_that_was_killed_goes_on_where_it_was() -> None:
    rows = all_rows(3)
    # Between two rounds, and in the middle of the first one.
    assert asked(batches_of(rows[:3], launches=3).next()) == [(2, 4)]
    assert asked(batches_of(rows[:4], launches=3).next()) == [(3, 4)]
    assert len(asked(batches_of(rows[:2], launches=3).next())) == 1
    assert asked(batches_of(rows, launches=3).next()) == []


def first_rows(**status: str) -> list[dict[str, Any]]:
    """Rows of the first round, of which the trials named by `of_2` and so on ended otherwise."""
    return [
        row_of(trial, status=status.get(f"of_{trial.point.micro_batch}", "ok"))
        for trial in batches_of().next().to_run
    ]


def test_what_has_no_final_result_is_over_for_this_run_and_not_for_the_next() -> None:
    batches = batches_of()
    batches.next()
    rows = first_rows(of_2="rank_died")
    assert asked(batches.next(rows)) == [(2, 4)]
    assert asked(batches.next(rows)) == []
    assert asked(batches_of(rows).next()) == [(1, 2)]


@pytest.mark.parametrize(
    # The same point is the best again, or another one.
    ("power", "best"),
    [(1, 4), (-1, 1)],
)
def test_rerun_all_measures_all_rounds_again_by_new_rows_alone(power: int, best: int) -> None:
    batches = batches_of(all_rows(2), rerun="all")
    first = batches.next()
    assert asked(first) == ALL
    new = [row_of(t, samples_per_s=10.0 * t.point.micro_batch**power) for t in first.to_run]
    second = batches.next(new)
    assert asked(second) == [(2, best)]
    assert asked(batches.next([*new, *rows_of(second.to_run)])) == []


def test_rerun_failed_measures_a_failure_once_and_then_goes_on() -> None:
    stored = first_rows(of_4="user_error")
    assert asked(batches_of(stored).next()) == [(2, 2)]
    for status, then in (("user_error", (2, 2)), ("ok", (2, 4))):
        batches = batches_of(stored, rerun="failed")
        again = batches.next()
        assert asked(again) == [(1, 4)]
        assert asked(batches.next(rows_of(again.to_run, status=status))) == [then]


def test_a_point_that_is_skipped_for_memory_is_not_waited_for() -> None:
    stored = [row for row in first_rows(of_2="oom_device") if row["micro_batch"] < 4]
    plan = batches_of(stored).next()
    assert asked(plan) == [(2, 1)]
    assert [candidate.point.micro_batch for candidate in plan.skipped] == [4]


def test_a_policy_gets_the_rows_of_its_harness() -> None:
    policy = BestAgain(sweep=SWEEP)
    elsewhere = rows_of(batches_of().next().to_run, harness="in_process")
    batches = Batches(SWEEP, candidates(SWEEP), elsewhere, policy=policy)
    batches.next(rows_of(batches.next().to_run))
    assert policy.asked == [0, 3]


def test_a_grid_asks_for_all_at_once_and_reads_few_columns() -> None:
    grid = replace(SWEEP, measure=Measure(repeats=2))
    batches = Batches(grid, candidates(grid), [])
    first = batches.next()
    assert len(first.to_run) == 6
    # It is not planned again, which takes long for many points.
    second = batches.next()
    assert not second.to_run
    assert second.done is first.done
    assert (columns_read(SWEEP), columns_read(grid)) == (None, PLANNED_BY)
