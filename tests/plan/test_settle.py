"""Rounds of a question: who is launched again, with which windows, and when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Goal, Measure, Sweep, workloads
from dtsweep.metrics.rows import point_row
from dtsweep.plan.batches import Batches, columns_read
from dtsweep.plan.plan import PLANNED_BY, Plan, make_plan, policy_of
from dtsweep.plan.policy import Round, WholeGrid
from dtsweep.plan.settle import Settle
from dtsweep.plan.trial import Trial
from dtsweep.provenance.versions import versions
from dtsweep.results.schema import TRIALS
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import trial_name
from tests.measured import Machine
from tests.rounds import BestAgain

AXES = {"micro_batch": [1, 2, 4, 8, 16, 32], "accumulation": [1, 2]}
SWEEP = Sweep(workload=workloads.Gpt(), axes=AXES, goal="throughput")


def rising(point: Point) -> float:
    """Far apart: 100, 110, … samples per second."""
    return 100.0 + 10 * [1, 2, 4, 8, 16, 32].index(point.micro_batch) + point.accumulation


def near(point: Point) -> float:
    """Three points within a percent of the best, all others far behind."""
    return 100.0 + point.accumulation / 10 if point.micro_batch >= 16 else 50.0


def settle(sweep: Sweep = SWEEP) -> Settle:
    policy = policy_of(sweep)
    assert isinstance(policy, Settle)
    return policy


def micro_batches(one: Round) -> list[int]:
    return sorted({point.micro_batch for point in one.points})


def test_first_all_points_have_short_windows_and_a_quick_look_at_the_exchange() -> None:
    sweep = replace(SWEEP, measure=Measure(half_width=0.01, exchange="precise"))
    machine = Machine(sweep, near)
    (first,) = settle(sweep).rounds(machine.points, [])
    assert len(first.points) == 12
    assert (first.measure.half_width, first.measure.min_seconds) == (0.05, 0.5)
    assert first.measure.exchange == "quick"
    machine.measure(first)
    second = settle(sweep).rounds(machine.points, machine.rows)[1]
    assert second.measure.half_width == 0.01
    assert second.measure.exchange == "precise"


def test_then_the_contenders_alone_are_launched_until_the_question_is_decided() -> None:
    rounds = Machine(SWEEP, near).finish(settle())
    assert [one.repeat for one in rounds] == list(range(1, len(rounds) + 1))
    assert all(micro_batches(one) == [16, 32] for one in rounds[1:])
    assert 2 <= len(rounds) < 8
    # The second round has three points at least.
    decided = Machine(SWEEP, lambda point: 100.0 * point.micro_batch).finish(settle())
    assert [len(one.points) for one in decided] == [12, 3]


def test_a_round_goes_on_as_it_was_begun_whatever_its_own_rows_show() -> None:
    machine = Machine(SWEEP, near)
    policy = settle()
    machine.measure(policy.rounds(machine.points, [])[-1])
    begun = policy.rounds(machine.points, machine.rows)[-1]
    # One of them turns out to be slow, then the run is killed.
    half = begun.points[: len(begun.points) // 2]
    machine.rate = lambda point: 97.0
    machine.measure(begun, half)
    assert policy.rounds(machine.points, machine.rows)[-1] == begun
    machine.rate = near
    machine.measure(begun, machine.left_of(begun))
    assert policy.rounds(machine.points, machine.rows)[-1].repeat == 3


def test_trials_that_are_not_measured_again_end_a_round() -> None:
    machine, policy = Machine(SWEEP, near), settle()
    (first,) = policy.rounds(machine.points, [])
    machine.measure(first, first.points[1:])
    assert len(policy.rounds(machine.points, machine.rows)) == 1
    lost = trial_name(SWEEP, first.points[0], repeat=1)
    assert len(policy.rounds(machine.points, machine.rows, over={lost})) == 2
    # Nor does a cancelled attempt after a result open it again.
    machine.measure(first, first.points[:1])
    cancelled = {**machine.rows[0], "attempt_id": "x", "status": "cancelled", "row_number": 99}
    assert len(policy.rounds(machine.points, [*machine.rows, cancelled])) == 2


@pytest.mark.slow
def test_no_point_gets_more_launches_than_allowed_or_useful() -> None:
    # One that is too noisy for the question is not asked to the end.
    for noise, allowed, count in ((0.02, 3, 3), (0.3, 8, 2)):
        sweep = replace(SWEEP, max_launches=allowed)
        assert len(Machine(sweep, near, noise=noise).finish(settle(sweep))) == count


@pytest.mark.slow
@pytest.mark.parametrize(("times", "rounds_of_it"), [(1, 3), (2, 2)])
def test_a_point_that_only_timed_out_is_launched_with_the_next_round_but_not_for_ever(
    times: int, rounds_of_it: int
) -> None:
    machine, policy = Machine(SWEEP, rising), settle()
    best = identity(machine.points[-1])
    for _ in range(3):
        one = policy.rounds(machine.points, machine.rows)[-1]
        if not machine.left_of(one):
            break
        machine.measure(one)
        for row in machine.rows:
            if row["point_id"] == best and row["repeat"] == one.repeat <= times:
                row.update(status="timeout", samples_per_s=None)
    assert sum(row["point_id"] == best for row in machine.rows) == rounds_of_it


def test_points_of_other_sweeps_in_the_results_have_no_say() -> None:
    machine = Machine(SWEEP, near)
    other = replace(SWEEP, axes={"micro_batch": [64]})
    stranger = Machine(other, lambda point: 1e6)
    stranger.measure(settle(other).rounds(stranger.points, [])[0])
    machine.rows = [{**row, "attempt_id": "x", "row_number": 0} for row in stranger.rows]
    rounds = machine.finish(settle())
    assert micro_batches(rounds[-1]) == [16, 32]


def with_p99(point: Point) -> dict[str, Any]:
    """A 99th percentile that is at a limit of 200 ms with a micro-batch of 16."""
    value_s = 0.2 * (point.micro_batch / 16) ** 0.5
    shares = {"": 1, "_low": 0.97, "_high": 1.03, "_error": 0.015}
    return {f"step_p99_s{end}": value_s * share for end, share in shares.items()}


def test_a_point_near_a_limit_is_launched_until_it_is_in_or_out() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s <= 200ms")
    sweep = replace(SWEEP, goal=goal)
    rounds = Machine(sweep, rising, columns=with_p99).finish(settle(sweep))
    assert 16 in micro_batches(rounds[1])
    assert 32 not in micro_batches(rounds[1])
    # The condition on a quantile sets the least steps of windows.
    assert rounds[0].measure.max_steps >= rounds[0].measure.min_steps >= 368


@pytest.mark.parametrize(("turns", "half_width"), [(True, 0.015), (False, 0.02)])
def test_later_rounds_take_turns_until_half_of_the_zone_is_known(
    *, turns: bool, half_width: float
) -> None:
    sweep = replace(SWEEP, measure=replace(SWEEP.measure, half_width=0.02, turns=turns))
    first, second, *_ = Machine(sweep, near).finish(settle(sweep))
    assert (first.in_turn, first.measure.half_width) == (False, 0.05)
    assert (second.in_turn, second.measure.half_width) == (turns, half_width)
    # A short first round, where turns follow.
    assert (first.measure.max_seconds < sweep.measure.max_seconds) is turns


def test_a_frontier_is_asked_for_unless_something_else_is() -> None:
    sweep = Sweep(workload=workloads.Gpt(), axes=AXES)
    machine = Machine(sweep, rising)
    rounds = machine.finish(settle(sweep))
    assert 2 <= len(rounds) <= 3
    # A larger batch has longer steps and a higher rate; twice the accumulation brings nothing.
    assert {point.accumulation for point in rounds[-1].points} == {1} or len(rounds) == 3


def test_a_plan_has_the_launches_that_are_left_of_the_open_points() -> None:
    machine = Machine(SWEEP, near, noise=0.01)
    assert make_plan(SWEEP, candidates(SWEEP), []).most_launches == 7 * len(machine.points)
    machine.measure(settle().rounds(machine.points, [])[0])
    plan = make_plan(SWEEP, candidates(SWEEP), machine.rows)
    assert plan.most_launches == 6 * len(plan.to_run)
    grid = replace(SWEEP, goal=None, measure=Measure(repeats=3))
    assert isinstance(policy_of(grid), WholeGrid)
    assert make_plan(grid, candidates(grid), []).most_launches is None


@pytest.mark.slow
def test_launches_of_an_earlier_grid_count_as_those_of_rounds() -> None:
    machine = Machine(SWEEP, near, noise=0.03)
    grid = WholeGrid(sweep=replace(SWEEP, goal=None, measure=Measure(repeats=3)))
    for one in grid.rounds(machine.points, []):
        machine.measure(one)
    following = settle().rounds(machine.points, machine.rows)[-1]
    assert following.repeat == 4
    assert micro_batches(following) == [16, 32]


@pytest.mark.slow
def test_a_contender_whose_launches_fail_is_given_up() -> None:
    machine = Machine(SWEEP, near)
    policy = settle()
    machine.measure(policy.rounds(machine.points, [])[-1])
    broken = ""
    for repeat in (2, 3):
        one = policy.rounds(machine.points, machine.rows)[-1]
        assert one.repeat == repeat
        machine.measure(one)
        broken = broken or machine.rows[-1]["point_id"]
        for row in machine.rows:
            if row["point_id"] == broken and row["repeat"] == repeat:
                row.update(status="user_error", samples_per_s=None)
        machine.rate = lambda point: near(point) * (1 + machine.rng.normal(0, 0.03))
    again = policy.rounds(machine.points, machine.rows)[-1]
    assert again.repeat == 4
    assert broken not in {identity(point) for point in again.points}


# Plans of a run whose policy asks for rounds

SIZES = Sweep(
    workload=workloads.Gpt(), axes={"micro_batch": [1, 2, 4]}, measure=Measure(min_steps=5)
)


def row_of(trial: Trial, *, status: str = "ok", **more: Any) -> dict[str, Any]:
    """A row of a trial: the larger its micro-batch, the higher the rate."""
    return {
        **{column.name: None for column in TRIALS},
        **point_row(SIZES, trial.point),
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
    sweep: Sweep = SIZES,
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
    policy = BestAgain(sweep=SIZES)
    elsewhere = rows_of(batches_of().next().to_run, harness="in_process")
    batches = Batches(SIZES, candidates(SIZES), elsewhere, policy=policy)
    batches.next(rows_of(batches.next().to_run))
    assert policy.asked == [0, 3]


def test_a_grid_asks_for_all_at_once_and_reads_few_columns() -> None:
    grid = replace(SIZES, measure=Measure(repeats=2))
    batches = Batches(grid, candidates(grid), [])
    first = batches.next()
    assert len(first.to_run) == 6
    # It is not planned again, which takes long for many points.
    second = batches.next()
    assert not second.to_run
    assert second.done is first.done
    assert (columns_read(SIZES), columns_read(grid)) == (None, PLANNED_BY)
