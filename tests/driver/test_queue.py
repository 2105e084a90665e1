"""The queue of a run: sessions between canaries, retries, giving up; without Ray."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Measure, Search, Sweep
from dtsweep.driver.queue import Queue
from dtsweep.driver.slot_queue import CANARY_EVERY_S
from dtsweep.plan.plan import make_plan
from dtsweep.plan.pruning import MemoryOutcome
from dtsweep.plan.trial import Trial, choose_canaries, groups_of
from dtsweep.results.statuses import ATTEMPTS
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import Task
from tests.counts import calls_of
from tests.outcomes import Tokens

Axes = dict[str, list[Any]]
AXES: Axes = {"workers": [1, 2], "micro_batch": [2, 4, 8]}
SMALLER = Sweep(workload=Tokens(), axes={"micro_batch": [1, 2]}, measure=Measure(repeats=1))
RETRIED = ["rank_died", "node_lost", "preempted", "collateral"]
HOPELESS = ["no_nodes", "version_mismatch", "launch_failed"]


def queue_of(
    *,
    slots: int = 1,
    is_nested: bool = False,
    axes: Axes = AXES,
    peaks: Sequence[MemoryOutcome] = (),
    is_smallest_first: bool = False,
    repeats: int = 1,
    **measure: object,
) -> Queue:
    sweep = Sweep(
        workload=Tokens(),
        axes=axes,
        measure=Measure(repeats=repeats, **measure),  # type: ignore[arg-type]  # fields
    )
    trials = make_plan(sweep, candidates(sweep), []).to_run
    if is_smallest_first:
        trials = sorted(trials, key=lambda trial: trial.point.micro_batch)
    groups = groups_of(trials, fresh=sweep.measure.fresh)
    if is_nested:
        groups = [[trial for group in groups for trial in group]]
    queue = Queue(sweep, slots=slots, peaks=peaks)
    queue.extend(groups, choose_canaries(trials))
    return queue


def take(queue: Queue, slot: int = 0, now: float = 0.0) -> tuple[Trial, Task]:
    return queue.next(slot, now=now)


def work_off(
    queue: Queue, *statuses: str, session_has_ended: bool = False
) -> list[tuple[Trial, Task]]:
    """Hand out all, each ending `ok` after the first statuses; what was handed out."""
    handed_out = []
    endings = [*statuses]
    while not queue.is_empty:
        trial, task = take(queue)
        handed_out.append((trial, task))
        status = endings.pop(0) if endings and not trial.is_canary else "ok"
        queue.ended(0, trial, task, status, session_has_ended=session_has_ended and status != "ok")
    return handed_out


def not_up(
    queue: Queue, one: tuple[Trial, Task], status: str, *, hopeless_for: str | None = "world"
) -> list[tuple[Trial, Task]]:
    """Let the session of an attempt not come up; what is given up with it."""
    given_up = queue.give_up(0, one[1], hopeless_for=hopeless_for)
    queue.ended(0, *one, status, session_has_ended=True)
    return given_up


def end(queue: Queue, one: tuple[Trial, Task], status: str = "ok", slot: int = 0) -> None:
    """Let an attempt end whose session goes on."""
    queue.ended(slot, *one, status, session_has_ended=False)


def worlds(handed_out: list[tuple[Trial, Task]]) -> list[tuple[int, str]]:
    return [(trial.point.workers, trial.role) for trial, _ in handed_out]


def watched(workers: int) -> list[tuple[int, str]]:
    """Three trials of a world between its canaries."""
    return [(workers, "canary"), *[(workers, "trial")] * 3, (workers, "canary")]


def test_a_session_is_a_world_between_two_canaries_the_largest_world_first() -> None:
    assert worlds(work_off(queue_of())) == [*watched(2), *watched(1)]
    # Of several worlds in a session the largest is watched.
    nested = [(2, "canary"), *[(2, "trial")] * 3, *[(1, "trial")] * 3, (2, "canary")]
    assert worlds(work_off(queue_of(is_nested=True))) == nested
    # A single trial is not.
    assert worlds(work_off(queue_of(axes={"workers": [1, 2]}))) == [(2, "trial"), (1, "trial")]
    assert {role for _, role in worlds(work_off(queue_of(canary=False)))} == {"trial"}


def test_each_repeat_and_each_fresh_trial_has_a_session_of_its_own() -> None:
    axes: Axes = {"workers": [1], "micro_batch": [2, 4]}
    handed_out = work_off(queue_of(repeats=2, axes=axes))
    assert [task.repeat for _, task in handed_out] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [task.role for _, task in handed_out] == ["canary", "trial", "trial", "canary"] * 2
    groups = [task.session_group for _, task in work_off(queue_of(fresh=True, axes=axes))]
    assert len(set(groups)) == 2


def test_what_is_tried_again_comes_before_smaller_worlds() -> None:
    queue = queue_of(is_nested=True, canary=False)
    handed_out = work_off(queue, "rank_died", session_has_ended=True)
    assert [task.attempt for _, task in handed_out] == [1, 1, 1, 2, 1, 1, 1]
    assert [trial.point.workers for trial, _ in handed_out] == [2, 2, 2, 2, 1, 1, 1]


def test_a_session_that_ends_before_smaller_worlds_is_followed_by_one_of_theirs() -> None:
    statuses = ("ok", "ok", "user_error")
    handed_out = work_off(queue_of(is_nested=True), *statuses, session_has_ended=True)
    assert worlds(handed_out) == [*watched(2)[:-1], *watched(1)]
    # A single trial that is left has no canary of its own.
    queue = queue_of(is_nested=True, axes={"workers": [1, 2], "micro_batch": [2]})
    handed_out = work_off(queue, "ok", "rank_died", session_has_ended=True)
    assert worlds(handed_out) == [(2, "canary"), (2, "trial"), (1, "trial"), (1, "trial")]
    # Nor does the canary of the larger world, which is open, start a session.
    queue = queue_of(is_nested=True, axes={"workers": [1, 2], "micro_batch": [2, 4]})
    for workers in (2, 2, 2, 2, 1):
        trial, task = take(queue)
        queue.ended(0, trial, task, "ok", session_has_ended=False, session_workers=workers)
    assert queue.is_empty


def test_in_a_long_session_the_canary_is_measured_in_between() -> None:
    queue = queue_of(axes={"workers": [1], "micro_batch": [2, 4, 8]})
    times = [0.0, 1.0, CANARY_EVERY_S + 2.0, CANARY_EVERY_S + 3.0, CANARY_EVERY_S + 4.0]
    roles = [take(queue, now=now)[0].role for now in times]
    assert roles == ["canary", "trial", "canary", "trial", "trial"]
    # It does not end with two of them.
    assert take(queue, now=3 * CANARY_EVERY_S)[0].role == "canary"
    assert queue.is_empty


def test_a_trial_has_three_attempts_and_one_if_it_ended_by_itself() -> None:
    for status in ("rank_died", "ok", "user_error", "oom_device", "nan", "hang", "timeout"):
        handed_out = work_off(queue_of(axes={"workers": [1]}), *[status] * 5)
        attempts = ATTEMPTS if status == "rank_died" else 1
        assert [task.attempt for _, task in handed_out] == [*range(1, attempts + 1)], status


@pytest.mark.parametrize(("last", "status"), [(1, "rank_died"), (3, "user_error")])
def test_no_canary_is_tried_again_and_no_session_started_for_one_alone(
    last: int, status: str
) -> None:
    queue = queue_of(axes={"workers": [1], "micro_batch": [2, 4]})
    roles = []
    while not queue.is_empty:
        one = take(queue)
        roles.append(one[1].role)
        ends = len(roles) == last
        queue.ended(0, *one, status if ends else "ok", session_has_ended=ends)
    # After the first canary's end another one closes the session; after a trial's none is left.
    assert roles == ["canary", "trial", "trial", "canary"][: 4 if last == 1 else 3]


@pytest.mark.parametrize("status", RETRIED)
def test_a_fault_that_was_not_the_trials_own_is_tried_again_at_the_end_of_its_session(
    status: str,
) -> None:
    handed_out = work_off(queue_of(axes={"workers": [1], "micro_batch": [2, 4, 8]}), status)
    first = handed_out[1][1]
    assert [task.role for _, task in handed_out] == ["canary", *["trial"] * 4, "canary"]
    again = handed_out[-2][1]
    assert (again.trial_id, again.attempt) == (first.trial_id, 2)
    assert again.attempt_id != first.attempt_id


@pytest.mark.parametrize("status", HOPELESS)
def test_a_world_that_does_not_come_up_gives_up_its_other_trials_in_all_repeats_and_no_other_world(
    status: str,
) -> None:
    queue = queue_of(canary=False, repeats=2)
    trial, task = take(queue)
    given_up = not_up(queue, (trial, task), status)
    left = [(other.point.workers, made.attempt, made.repeat) for other, made in given_up]
    assert left == [*[(2, 1, 1)] * 2, *[(2, 1, 2)] * 3]
    assert {made.trial_id for _, made in given_up}.isdisjoint({task.trial_id})
    assert [other.point.workers for other, _ in work_off(queue)] == [1] * 6


def test_what_stands_in_the_way_of_every_world_gives_all_of_them_up() -> None:
    queue = queue_of()
    given_up = not_up(queue, take(queue), "launch_failed", hopeless_for="run")
    assert worlds(given_up) == [*[(2, "trial")] * 3, *[(1, "trial")] * 3]
    assert queue.is_empty
    # Where a smaller world may come up, it is tried in a session of its own.
    queue = queue_of(is_nested=True)
    given_up = not_up(queue, take(queue), "no_nodes")
    assert worlds(given_up) == [(2, "trial")] * 3
    assert worlds(work_off(queue)) == watched(1)


def test_a_launch_that_may_come_up_the_next_time_gives_up_nothing_and_is_tried_again() -> None:
    queue = queue_of(canary=False)
    first = take(queue)
    assert not_up(queue, first, "rank_died", hopeless_for=None) == []
    handed_out = [(trial.point.workers, task.attempt) for trial, task in work_off(queue)]
    # Behind the others of its world.
    assert handed_out == [(2, 1), (2, 1), (2, 2), (1, 1), (1, 1), (1, 1)]


# A point that ran out of device memory

RISING: Axes = {"workers": [1, 2], "micro_batch": [2, 4, 8, 16], "sync": ["ddp", "local_sgd"]}
REASON = "micro_batch=4 ran out of memory; --try-all measures it"


def run_out(
    queue: Queue, micro_batch: int, status: str = "oom_device"
) -> tuple[Trial, list[tuple[Trial, str]]]:
    """Take until a trial has this micro-batch, and let it end so."""
    one = take(queue)
    while one[0].is_canary or one[0].point.micro_batch != micro_batch:
        end(queue, one)
        one = take(queue)
    pruned = queue.prune(one[0], status)
    end(queue, one, status)
    return one[0], pruned


def shapes(trials: Iterable[Trial]) -> set[tuple[int, str, int]]:
    return {(each.point.workers, each.point.sync, each.point.micro_batch) for each in trials}


def smallest(trial: Trial) -> Trial:
    """As if it had the smallest micro-batch: which one is first in the order is drawn."""
    return replace(trial, point=replace(trial.point, micro_batch=1))


def test_a_point_with_only_a_larger_micro_batch_than_a_full_one_is_skipped_with_a_reason() -> None:
    queue = queue_of(axes=RISING, canary=False, repeats=2)
    full, pruned = run_out(queue, 4)
    assert {reason for _, reason in pruned} == {REASON}
    larger = {(full.point.workers, full.point.sync, size) for size in (8, 16)}
    assert shapes(each for each, _ in pruned) <= larger
    # What had not run yet, in all its repeats: no trial of the second.
    left = [trial for trial, _ in work_off(queue)]
    assert larger.isdisjoint(shapes(left))
    assert {each.point.micro_batch for each in left} == {2, 4, 8, 16}
    assert {each.repeat for each, _ in pruned} >= {2}
    # Another end skips nothing.
    for status in ("ok", "oom_host", "user_error", "hang"):
        assert run_out(queue_of(axes=RISING), 2, status)[1] == []


def test_what_ran_out_although_more_fits_and_a_canary_and_a_run_without_pruning_skip_nothing() -> (
    None
):
    axes: Axes = {"micro_batch": [2, 4, 8]}
    queue = queue_of(axes=axes, canary=False)
    trial, _ = take(queue)
    assert queue.prune(trial, "ok") == []
    assert queue.prune(smallest(trial), "oom_device") == []
    fitted = MemoryOutcome(Point(workload=Tokens(), micro_batch=8), "ok", {})
    queue = queue_of(axes=axes, canary=False, peaks=[fitted])
    assert queue.prune(smallest(take(queue)[0]), "oom_device") == []
    queue = queue_of(axes=RISING)
    assert queue.prune(take(queue)[0], "oom_device") == []
    queue = queue_of(axes=axes, canary=False, prune=False)
    assert queue.prune(smallest(take(queue)[0]), "oom_device") == []
    assert len(work_off(queue)) == 2


def test_what_needs_more_than_a_gpu_has_by_the_peaks_so_far_is_skipped_without_a_try() -> None:
    axes: Axes = {"micro_batch": [1, 2, 4, 8, 200]}
    reason = "will not fit (needs about 200 GiB of 78); --try-all measures it"
    for prune, expected in ((True, [reason]), (False, [])):
        queue = queue_of(axes=axes, canary=False, is_smallest_first=True, prune=prune)
        reasons = []
        while not queue.is_empty:
            trial, task = take(queue)
            used = trial.point.micro_batch * 2**30
            facts = {"memory_peak_bytes": used, "device_free_bytes": 78 * 2**30}
            reasons += [reason for _, reason in queue.prune(trial, "ok", facts)]
            end(queue, (trial, task))
        assert reasons == expected


def test_sessions_after_a_canary_that_ran_out_are_watched_by_a_smaller_micro_batch() -> None:
    queue = queue_of(axes={"micro_batch": [2, 4, 8]}, repeats=2)
    canary, task = take(queue)
    assert canary.point.micro_batch == 4
    end(queue, (canary, task), "oom_device")
    handed_out = [trial for trial, _ in work_off(queue)]
    assert [trial.point.micro_batch for trial in handed_out if trial.is_canary] == [2] * 4
    assert [trial.is_canary for trial in handed_out] == [True, *[False] * 3, True] * 2
    # One that no smaller one can stand for is measured once.
    queue = queue_of(axes={"micro_batch": [4, 8], "sync": ["ddp"]}, repeats=2)
    for size in (8, 4):
        canary, task = take(queue)
        assert (canary.is_canary, canary.point.micro_batch) == (True, size)
        end(queue, (canary, task), "oom_device")
    assert not any(trial.is_canary for trial, _ in work_off(queue))


@pytest.mark.parametrize("measure", [{"canary": False, "fresh": True}, {}])
def test_no_session_is_started_of_which_all_but_a_canary_is_skipped(
    measure: dict[str, Any],
) -> None:
    queue = queue_of(axes={"micro_batch": [2, 4, 8]}, **measure)
    trial, task = take(queue)
    if trial.is_canary:
        trial, task = take(queue)
    assert len(queue.prune(smallest(trial), "oom_device")) == 2
    queue.ended(0, trial, task, "oom_device", session_has_ended=True)
    assert queue.is_empty


def test_a_trial_and_its_retry_have_the_settings_of_their_round_and_canaries_the_sweeps() -> None:
    sweep = Sweep(workload=Tokens(), axes={"micro_batch": [2, 4]})
    longer = Measure(min_steps=99)
    trials = [replace(t, measure=longer) for t in make_plan(sweep, candidates(sweep), []).to_run]
    queue = Queue(sweep)
    queue.extend([trials], choose_canaries(trials))
    assert queue.waiting == 2
    tasks = [task for _, task in work_off(queue, "rank_died")]
    assert [task.measure for task in tasks if not task.is_canary] == [longer] * 3
    assert {task.measure.min_steps for task in tasks if task.is_canary} == {20}
    assert (queue.is_empty, queue.waiting) == (True, 0)


def test_a_batch_that_follows_keeps_the_canary_of_a_world() -> None:
    queue = queue_of(axes={"micro_batch": [2, 4, 8]})
    first = {identity(trial.point) for trial, _ in work_off(queue) if trial.is_canary}
    later = make_plan(SMALLER, candidates(SMALLER), []).to_run
    queue.extend(groups_of(later, fresh=False), choose_canaries(later))
    assert {identity(trial.point) for trial, _ in work_off(queue) if trial.is_canary} == first


def test_lanes_work_off_sessions_of_their_own() -> None:
    queue = queue_of(slots=2, canary=False)
    first, other = take(queue, slot=0), take(queue, slot=1)
    assert (first[0].point.workers, other[0].point.workers) == (2, 1)
    assert take(queue, slot=0)[0].point.workers == 2
    assert queue.has_work(0)
    assert queue.has_work(1)


def test_the_work_of_a_queue_grows_with_its_trials_and_not_with_its_slots() -> None:
    def work(trials: int, slots: int) -> int:
        axes: Axes = {"workers": [1], "learning_rate": [i / 1000 for i in range(trials)]}
        queue = queue_of(slots=slots, axes=axes)
        return calls_of(lambda: work_off(queue))

    few = work(100, 1)
    assert work(1000, 1) < 11 * few
    assert work(100, 1000) < 1.5 * few


# Sessions that run at the same time


def test_any_waiting_session_may_begin() -> None:
    queue = queue_of(canary=False)
    assert [world.workers for world in queue.waiting_worlds()] == [2, 1]
    queue.begin(0, 1)
    assert take(queue)[0].point.workers == 1
    assert [world.workers for world in queue.waiting_worlds()] == [2]
    assert queue.world_of(0).workers == 1


def test_what_can_not_run_any_more_is_taken_out_with_its_tasks_and_without_canaries() -> None:
    queue = queue_of()
    take(queue)
    assert worlds(queue.refuse(0)) == [(1, "trial")] * 3
    assert worlds(queue.refuse_rest(0)) == [(2, "trial")] * 3
    assert queue.is_empty


def test_another_batch_of_a_search_in_its_live_session_has_no_canaries() -> None:
    sweep = Sweep(workload=Tokens(), axes={"micro_batch": [1, 2, 4, 8]}, search=Search())
    trials = [*make_plan(replace(sweep, search=None), candidates(sweep), []).to_run]
    queue = Queue(sweep)
    queue.extend([trials], choose_canaries(trials))
    assert sum(trial.is_canary for trial, _ in work_off(queue)) == 2
    queue.extend([trials], {})
    # The session dies, and the next batch has another one.
    assert not any(trial.is_canary for trial, _ in work_off(queue, "hang", session_has_ended=True))
    queue.extend([trials], {})
    assert sum(trial.is_canary for trial, _ in work_off(queue)) == 2
    queue.extend([trials], {})
    assert take(queue, now=CANARY_EVERY_S + 1)[0].is_canary
