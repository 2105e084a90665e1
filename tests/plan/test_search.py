"""A search in points whose rates follow a formula: its choices, its end, its replay; no Ray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtsweep import Goal, Measure, Resources, Search, Sweep, SweepError, workloads
from dtsweep.analysis.study import Study
from dtsweep.inference.pareto import hypervolume_of
from dtsweep.plan.batches import Batches
from dtsweep.plan.plan import make_plan
from dtsweep.plan.policy import Round
from dtsweep.plan.search_policy import LEAST_GAIN, SearchPolicy
from dtsweep.plan.search_pool import chances_of, charges_in, live_world, pool_of
from dtsweep.plan.search_worth import longest_steps
from dtsweep.plan.settle import Settle
from dtsweep.predict.step_time import fit_step_time
from dtsweep.results.certificate import Certificate
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, identity
from tests.measured import Machine

AXES = {
    "workers": [1, 2, 4, 8],
    "micro_batch": [1, 4, 16, 64],
    "accumulation": [1, 2],
    "sync": ["ddp", "ring"],
}
SWEEP = Sweep(workload=workloads.Gpt(), axes=AXES, search=Search(), max_launches=2)


def rate(point: Point) -> float:
    """Compute grows with the micro-batch; the exchange hides behind it in part."""
    compute_s = 0.01 + 0.002 * point.micro_batch
    exchange_s = 0.06 * (point.workers - 1) / point.workers
    if point.sync == "ring":
        exchange_s *= 1.3
    step_s = (point.accumulation - 1) * compute_s + max(compute_s, exchange_s)
    step_s += 0.2 * min(compute_s, exchange_s)
    return point.global_batch / step_s


def policy_for(sweep: Sweep) -> SearchPolicy:
    assert sweep.question is not None
    assert sweep.search is not None
    return SearchPolicy(sweep=sweep, question=sweep.question, search=sweep.search)


POLICY = policy_for(SWEEP)


@pytest.fixture(scope="module")
def searched() -> tuple[Machine, list[Round]]:
    """Machine whose points were searched, and all rounds."""
    machine = Machine(SWEEP, rate)
    return machine, machine.finish(POLICY)


def names(points: Any) -> list[str]:
    return [identity(point) for point in points]


def points_of(rounds: list[Round]) -> list[Point]:
    return [point for one in rounds if one.is_search for point in one.points]


def begun(sweep: Sweep, batches: int) -> tuple[Machine, SearchPolicy]:
    """A search that measured its first batches."""
    machine, policy = Machine(sweep, rate), policy_for(sweep)
    for _ in range(batches):
        machine.measure(policy.rounds(machine.points, machine.rows)[-1])
    return machine, policy


def dominated_share(points: list[Point]) -> float:
    """Hypervolume of points by their true rates, in the range of all points of the sweep."""

    def costs(some: list[Point]) -> Any:
        rates = np.array([rate(point) for point in some])
        sizes = np.array([point.global_batch for point in some])
        return np.log(np.stack([sizes / rates, 1 / rates], axis=1))

    grid = costs(Machine(SWEEP, rate).points)
    low, width = grid.min(axis=0), np.ptp(grid, axis=0)
    return hypervolume_of((costs(points) - low) / width, np.array([1.1, 1.1]))


def certificate_of(one: Round) -> Certificate:
    assert one.certificate is not None
    return one.certificate


def test_a_search_finds_the_frontier_with_far_fewer_points(
    searched: tuple[Machine, list[Round]],
) -> None:
    machine, rounds = searched
    points = points_of(rounds)
    assert len({*names(points)}) == len(points) < 0.5 * len(machine.points)
    assert dominated_share(points) > 0.97 * dominated_share(machine.points)


def test_the_answer_is_confirmed_by_another_launch_and_certified(
    searched: tuple[Machine, list[Round]],
) -> None:
    _, rounds = searched
    assert [one.repeat for one in rounds if not one.is_search] == [2]
    assert {*names(rounds[-1].points)} <= {*names(points_of(rounds))}
    certificate = certificate_of(rounds[-1])
    assert (certificate.measured, certificate.points) == (len(points_of(rounds)), 64)
    assert certificate.gain < LEAST_GAIN
    assert f"{certificate.measured} of 64 points measured; " in certificate.words


@pytest.mark.slow
def test_the_certificate_counts_the_launches_that_confirm_the_answer() -> None:
    machine, policy = begun(replace(SWEEP, search=Search(max_points=8)), 2)
    confirming = policy.rounds(machine.points, machine.rows)[-1]
    assert confirming.repeat == 2
    # The second launches are much faster: other points are less likely to be better.
    machine.rate = lambda point: 4 * rate(point)
    machine.measure(confirming)
    last = policy.rounds(machine.points, machine.rows)[-1]
    before, after = certificate_of(confirming), certificate_of(last)
    assert last.points == confirming.points
    assert after != before
    assert after.measured == before.measured == 8


def test_a_run_that_was_killed_chooses_the_same_points(
    searched: tuple[Machine, list[Round]],
) -> None:
    machine, rounds = searched
    # In the middle of the first batch, and of a later one.
    for count in (3, len([*rounds[0].points, *rounds[1].points]) + 1):
        again = Machine(SWEEP, rate, rows=machine.rows[:count])
        batches = Batches(SWEEP, candidates(SWEEP), again.rows)
        first = next(one for one in rounds if again.left_of(one))
        left = {(identity(point), first.repeat) for point in again.left_of(first)}
        to_run = batches.next().to_run
        assert {(identity(trial.point), trial.repeat) for trial in to_run} == left


def test_rows_of_later_launches_and_of_other_points_change_no_choice(
    searched: tuple[Machine, list[Round]],
) -> None:
    machine, rounds = searched
    strangers = [point for point in machine.points if point not in points_of(rounds)]
    more = Machine(SWEEP, rate, rows=[*machine.rows])
    more.measure(replace(rounds[-1], repeat=1), strangers[:3])
    again = POLICY.rounds(more.points, more.rows)
    assert [one.points for one in again] == [one.points for one in rounds]


def test_what_failed_is_not_chosen_again_and_lowers_the_chance_of_what_is_near() -> None:
    machine = Machine(SWEEP, rate)
    tried = [point for point in machine.points if point.workers == 8][:3]
    tried += [point for point in machine.points if point.workers == 1][:3]
    machine.measure(Round(repeat=1, points=tried, measure=Measure()))
    for row in machine.rows[:3]:
        row.update(status="user_error", samples_per_s=None)
    frame = Settle(sweep=SWEEP, question=Question()).frame(machine.rows, names(machine.points))
    pool = pool_of(SWEEP, machine.points, Study(frame).trials)
    chances = chances_of(SWEEP, pool, machine.rows, names(tried))
    assert all(chances[pool.names[name]] == 0 for name in names(tried))
    near, far = (
        [
            chances[pool.names[identity(point)]]
            for point in machine.points
            if point.workers == workers and point not in tried
        ]
        for workers in (8, 1)
    )
    assert max(near) < min(far)


@pytest.mark.parametrize("is_known", [True, False])
def test_points_that_will_not_fit_are_not_chosen(*, is_known: bool) -> None:
    gib = 2**30
    machine = Machine(SWEEP, rate)
    small = [point for point in machine.points if point.micro_batch <= 16]
    machine.measure(Round(repeat=1, points=small, measure=Measure()))
    for row in machine.rows:
        row["device_free_bytes"] = 78 * gib
        row["memory_peak_bytes"] = 2 * row["micro_batch"] * gib if is_known else None
        if row["micro_batch"] == 16 and not is_known:
            # Smaller batches ran out of memory.
            row |= {"status": "oom_device", "samples_per_s": None}
    study = Study(POLICY._settle.frame(machine.rows, names(small)))
    pool = pool_of(SWEEP, machine.points, study.trials)
    # 128 GiB of 78.
    large = [pool.names[identity(point)] for point in machine.points if point.micro_batch == 64]
    assert not chances_of(SWEEP, pool, machine.rows, names(small))[large].any()
    as_asked = replace(SWEEP, measure=Measure(prune=False))
    assert chances_of(as_asked, pool, machine.rows, names(small))[large].all()


def test_a_point_that_the_cluster_can_not_hold_was_not_tried() -> None:
    policy = policy_for(SWEEP)
    refused = Machine(SWEEP, rate)
    batch = policy.rounds(refused.points, [])[0]
    refused.measure(batch)
    refused.rows[-1].update(status="infeasible", samples_per_s=None, latency_s=None)
    over = {row["trial_id"] for row in refused.rows}
    certificate = certificate_of(policy.rounds(refused.points, refused.rows, over=over)[-1])
    assert certificate.measured == len(batch.points) - 1


@pytest.mark.slow
def test_what_failed_is_measured_again_together_with_the_next_points() -> None:
    machine, policy = Machine(SWEEP, rate), policy_for(SWEEP)
    for _ in range(2):
        machine.measure(policy.rounds(machine.points, machine.rows)[-1])
        machine.rows[1].update(status="user_error", samples_per_s=None, latency_s=None)
    stored = machine.rows
    as_planned = Batches(SWEEP, candidates(SWEEP), stored).next()
    again = Batches(SWEEP, candidates(SWEEP), stored, rerun="failed").next()
    asked = {trial.trial_id for trial in again.to_run}
    assert asked == {stored[1]["trial_id"], *(trial.trial_id for trial in as_planned.to_run)}
    assert len(again.done) == len(stored) - 1


@pytest.mark.parametrize(
    ("goal", "most_workers"),
    [
        (Goal(maximize="samples_per_s", where="latency_s <= 100ms and workers <= 4"), 4),
        (Goal(minimize="latency_s", least_rate=0.5, where="workers <= 2"), 2),
    ],
)
def test_a_goal_is_searched_among_the_points_that_meet_its_condition(
    goal: Goal, most_workers: int
) -> None:
    machine, policy = begun(replace(SWEEP, goal=goal), 2)
    # After the first points, the others are chosen where the goal looks.
    later = points_of([*policy.rounds(machine.points, machine.rows)[1:3]])
    assert later
    assert all(point.workers <= most_workers for point in later)


@pytest.mark.slow
def test_the_best_point_that_meets_a_condition_is_found() -> None:
    goal = Goal(maximize="samples_per_s", where="latency_s <= 100ms and workers <= 4")
    machine, policy = begun(replace(SWEEP, goal=goal), 3)
    meeting = [
        point
        for point in machine.points
        if point.workers <= 4 and point.global_batch / rate(point) <= 0.1
    ]
    assert max(meeting, key=rate) in points_of([*policy.rounds(machine.points, machine.rows)])


def test_points_with_other_semantics_than_the_goal_allows_are_not_measured() -> None:
    # Local updates are faster than all others, and no answer to this goal.
    axes = {**AXES, "sync": ["ddp", "local_sgd"]}
    sweep = replace(SWEEP, axes=axes, goal="throughput")
    machine = Machine(sweep, lambda point: rate(point) * (5 if point.semantics == "local" else 1))
    rounds = machine.finish(policy_for(sweep))
    points = points_of(rounds)
    exact = [point for point in machine.points if point.semantics == "exact"]
    assert {point.semantics for point in points} == {"exact"}
    assert max(map(rate, points)) > 0.98 * max(map(rate, exact))


def test_a_search_without_an_answer_is_refused_with_the_next_step() -> None:
    sweep = replace(SWEEP, axes={**AXES, "sync": ["local_sgd"]}, goal="throughput")
    with pytest.raises(SweepError, match=r"allow=\('local',\)"):
        policy_for(sweep).rounds(Machine(sweep, rate).points, [])
    machine, policy = begun(replace(SWEEP, goal="energy"), 1)
    with pytest.raises(SweepError, match="energy_j_per_sample of any measured trial: search on"):
        policy.rounds(machine.points, machine.rows)


@pytest.mark.slow
def test_a_condition_that_nothing_meets_is_named_by_the_certificate() -> None:
    goal = Goal(maximize="samples_per_s", where="latency_s <= 1us")
    sweep = replace(SWEEP, goal=goal)
    certificate = certificate_of(Machine(sweep, rate).finish(policy_for(sweep))[-1])
    assert not certificate.has_answer
    assert "they do not meet the condition; no other point could meet it" in certificate.words


def test_a_limit_of_a_condition_is_met_to_a_hundredth_of_the_prediction_s_error() -> None:
    goal = Goal(maximize="samples_per_s", where="latency_s <= 100ms")
    machine = Machine(replace(SWEEP, goal=goal), rate)
    machine.measure(POLICY.rounds(machine.points, [])[-1])
    study = Study(POLICY._settle.frame(machine.rows, names(machine.points)))
    pool = pool_of(machine.sweep, machine.points, study.trials)
    prediction = fit_step_time(pool.measured_setups, pool.measured).predict(pool.setups)
    longest = longest_steps(
        machine.sweep, goal.where, pool=pool, study=study, prediction=prediction
    )
    # A latency is the step time here.
    at = (np.log(0.1) - prediction.log_step_s) / prediction.error
    is_near = (np.abs(at) < 4.5) & ~np.isin(np.arange(len(at)), pool.rows)
    assert is_near.any()
    given = (longest - prediction.log_step_s) / prediction.error
    np.testing.assert_allclose(given[is_near], at[is_near], atol=0.01)


@pytest.mark.parametrize("nested", [True, False])
def test_a_live_session_costs_no_start_and_holds_its_workers(*, nested: bool) -> None:
    sweep = replace(SWEEP, measure=Measure(nested=nested))
    machine = Machine(sweep, rate)
    frame = Settle(sweep=sweep, question=Question()).frame([], names(machine.points))
    pool = pool_of(sweep, machine.points, Study(frame).trials)
    live = Point(workers=4).world
    charges, number = charges_in(sweep, pool, [], measure=sweep.measure, live=live)
    costs = charges.of(np.zeros(64), live=number)
    cost = {point.workers: costs[row] for row, point in enumerate(pool.points)}
    start_s, trial_s = charges.start_s[0], cost[4] / 4
    assert cost[8] == pytest.approx(8 * (start_s + trial_s))
    # Smaller worlds run in the processes of a larger one, unless each has sessions of its own.
    assert cost[1] == pytest.approx(4 * trial_s if nested else start_s + trial_s)


def test_the_live_session_is_the_largest_world_s_while_others_fit_into_it() -> None:
    batches = [[Point(workers=workers) for workers in some] for some in ([1, 8, 2], [2, 4], [8])]

    def live_after(count: int, **settings: Any) -> int | None:
        live = live_world(replace(SWEEP, **settings), batches[:count])
        return None if live is None else live.workers

    assert [live_after(count) for count in range(4)] == [None, 8, 8, 8]
    # Each world has sessions of its own, the largest first: the smallest one's stays.
    apart = [live_after(count, measure=Measure(nested=False)) for count in (1, 2, 3)]
    assert apart == [1, 2, 8]
    assert live_after(3, measure=Measure(fresh=True)) is None
    assert live_after(3, resources=Resources(concurrent=2)) is None
    # Variables of the environment need processes of their own.
    other = [[Point(workers=2, environment={"OMP_NUM_THREADS": "1"})]]
    live = live_world(SWEEP, [*batches, *other])
    assert live is not None
    assert (live.workers, live == other[0][0].world) == (2, True)


def test_a_plan_says_what_a_search_begins_with_and_takes_at_most() -> None:
    assert SWEEP.question == replace(SWEEP, search=None).question == Question(max_launches=2)
    plan = make_plan(SWEEP, candidates(SWEEP), [])
    assert (len(plan.to_run), plan.points, plan.most_launches) == (6, 64, 64 * 2 - 6)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"search": Search(), "measure": Measure(repeats=2)}, "search=Search"),
        ({"search": True}, "must be Search"),
        ({"search": Search(), "goal": Goal(minimize="memory_peak_bytes")}, "memory_peak_bytes"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SweepError, match=words):
        Sweep(workload=workloads.Gpt(), axes=AXES, **settings)
    with pytest.raises(SweepError, match="max_points"):
        Search(max_points=0)
