"""Points that are measured in turn: handed out as one attempt, stored as one row each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Sweep
from dtsweep.driver.members import results_of_points, trials_of_attempt
from dtsweep.driver.queue import Queue
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rank_result import RankResult
from dtsweep.plan.trial import Trial, choose_canaries
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import Task, trial_name
from tests.outcomes import Tokens, facts

SWEEP = Sweep(workload=Tokens(), axes={"workers": [1, 2], "micro_batch": [2, 4]}, goal="throughput")


def trial_of(**fields: Any) -> Trial:
    takes_turns = fields.pop("takes_turns", True)
    point = Point(workload=Tokens(), **fields)
    name = trial_name(SWEEP, point, repeat=2)
    return Trial(
        point=point,
        repeat=2,
        trial_id=name,
        why="new",
        takes_turns=takes_turns,
        known_peak_bytes=len(identity(point)),
    )


def queue_of(*trials: Trial) -> Queue:
    queue = Queue(SWEEP)
    queue.extend([trials], choose_canaries(trials))
    return queue


def handed_out(queue: Queue) -> list[list[Trial]]:
    """The trials of each attempt; all end `ok`."""
    attempts = []
    while not queue.is_empty:
        trial, task = queue.next(0, now=0.0)
        members = trials_of_attempt(trial, task)
        attempts.append([member for member, _ in members])
        for member, of_member in members:
            queue.ended(0, member, of_member, "ok", session_has_ended=False)
    return attempts


def test_points_of_a_session_are_handed_out_together_the_largest_world_first() -> None:
    first, second = trial_of(workers=2, micro_batch=2), trial_of(workers=2, micro_batch=4)
    smaller, alone = trial_of(workers=1, micro_batch=2), trial_of(micro_batch=4, takes_turns=False)
    (members, others) = handed_out(queue_of(first, second, smaller, alone))
    assert [member.trial_id for member in members] == [
        trial.trial_id for trial in (first, second, smaller)
    ]
    assert [member.trial_id for member in others] == [alone.trial_id]


def test_each_task_in_turn_knows_what_memory_its_point_took() -> None:
    trials = [trial_of(workers=2, micro_batch=size) for size in (2, 4)]
    _, task = queue_of(*trials).next(0, now=0.0)
    assert [one.known_peak_bytes for one in task.in_turn] == [trials[1].known_peak_bytes]
    assert task.points == 2


@pytest.mark.parametrize(
    ("other", "together"),
    [({"placement": "spread"}, 1), ({"placement": "spread", "workers": 1}, 1), ({"workers": 1}, 2)],
)
def test_worlds_take_turns_only_where_one_is_the_first_ranks_of_the_other(
    other: dict[str, Any], together: int
) -> None:
    first = trial_of(workers=2, placement=other.get("placement", "pack"))
    attempts = handed_out(queue_of(first, trial_of(**{"workers": 2, "micro_batch": 4, **other})))
    assert len(attempts[0]) == (2 if other == {"placement": "spread"} else together)


def test_a_cycle_has_eight_points_at_most() -> None:
    trials = [trial_of(workers=2, micro_batch=size) for size in range(1, 12)]
    assert [len(members) for members in handed_out(queue_of(*trials))] == [8, 3]


def test_a_point_that_failed_in_turn_is_measured_again_alone() -> None:
    queue = queue_of(*(trial_of(workers=2, micro_batch=size) for size in (2, 4)))
    trial, task = queue.next(0, now=0.0)
    for member, of_member in trials_of_attempt(trial, task):
        queue.ended(0, member, of_member, "collateral", session_has_ended=False)
    again = [queue.next(0, now=0.0) for _ in range(2)]
    assert [(one.in_turn, task.attempt) for one, task in again] == [((), 2), ((), 2)]
    assert queue.is_empty


def measured_in_turn(*statuses: str | None, **fields: Any) -> tuple[AttemptResult, list[Task]]:
    """An attempt at as many points on two ranks; a point of None was measured on neither."""
    trials = [trial_of(workers=2, micro_batch=size + 1) for size in range(len(statuses))]
    _, task = queue_of(*trials).next(0, now=0.0)
    first, *others = [
        status and RankResult(status=status, reason=f"{status}?") for status in statuses
    ]
    assert first is not None
    results = {rank: replace(first, in_turn=others) for rank in range(2)}
    usual: dict[str, Any] = {"status": statuses[0], "results": results, "trial_s": 6.0}
    usual |= {"facts": {rank: facts() for rank in range(2)}, "startup_s": 5.0, "logs": {"a": "b"}}
    return AttemptResult(**usual | fields), [task, *task.in_turn]


def test_each_point_has_its_own_end_and_an_even_share_of_the_time() -> None:
    result, tasks = measured_in_turn("ok", "nan", "ok")
    parts = results_of_points(result, tasks)
    assert [part.status for part in parts] == ["ok", "nan", "ok"]
    assert parts[1].reason == "rank 0: nan?"
    assert sum(part.trial_s or 0.0 for part in parts) == result.trial_s
    # The session's start and logs are stored once.
    assert [part.startup_s for part in parts] == [5.0, None, None]
    assert [bool(part.logs) for part in parts] == [True, False, False]
    assert {part.turn_group for part in parts} == {tasks[0].attempt_id}


def test_a_point_without_room_is_measured_again() -> None:
    parts = results_of_points(*measured_in_turn("ok", None))
    assert [part.status for part in parts] == ["ok", "collateral"]
    assert "could not be measured in turn" in str(parts[1].reason)


@pytest.mark.parametrize(
    ("status", "expected"), [("user_error", "collateral"), ("rank_died", "rank_died")]
)
def test_where_the_attempt_failed_as_a_whole_no_point_is_blamed(status: str, expected: str) -> None:
    result, tasks = measured_in_turn("ok", "ok")
    failed = replace(result, status=status, reason="why", results={0: RankResult(status=status)})
    parts = results_of_points(failed, tasks)
    assert [part.status for part in parts] == [expected, expected]
    assert all("why" in str(part.reason) for part in parts)


def test_the_result_of_one_point_is_the_attempts() -> None:
    result, tasks = measured_in_turn("ok")
    assert results_of_points(result, tasks) == [result]


def test_turns_that_a_rank_did_not_end_count_for_no_point() -> None:
    result, tasks = measured_in_turn("ok", "ok")
    silent = replace(result, status="hang", reason="silent", results={0: result.results[0]})
    parts = results_of_points(silent, tasks)
    assert [part.status for part in parts] == ["collateral", "collateral"]
    lost = results_of_points(replace(result, status="node_lost"), tasks)
    assert [part.status for part in lost] == ["node_lost", "node_lost"]


def test_a_session_that_can_not_come_up_stays_what_it_was() -> None:
    result, tasks = measured_in_turn("ok", "ok")
    refused = replace(result, status="no_nodes", results={}, hopeless_for="world")
    assert {part.status for part in results_of_points(refused, tasks)} == {"no_nodes"}
