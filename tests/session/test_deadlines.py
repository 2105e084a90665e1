"""Until when ranks are waited for, by what they have said; no clock runs here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Measure, Sweep
from dtsweep.session.deadlines import (
    AttemptProgress,
    attempt_bound_s,
    collective_timeout_s,
    grace_s,
    hang_at,
)
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from tests.outcomes import Tokens

MEASURE = Measure(max_warmup_seconds=100, max_seconds=40)


def task(**point: Any) -> Task:
    sweep = Sweep(workload=Tokens(), axes={}, measure=MEASURE)
    return task_of(sweep, Point(workload=Tokens(), **point))


@pytest.mark.parametrize(
    ("warm_at", "slowest_step_s", "seconds"),
    [
        # The warm-up's time.
        (None, 0.0, 100),
        # The window, half as long for the exchange, two steps of 1 s, and a minute.
        (500.0, 1.0, 500 + 40 + 20 + 2 + 60),
        # Ten slow steps instead of a minute.
        (0.0, 30.0, 60 + 2 * 30 + 10 * 30),
    ],
)
def test_ranks_hang_after_the_times_of_their_phase(
    warm_at: float | None, slowest_step_s: float, seconds: float
) -> None:
    progress = AttemptProgress(began=0.0, warm_at=warm_at, slowest_step_s=slowest_step_s)
    assert hang_at(task(), progress) == seconds
    assert progress.give_up_at == math.inf


def test_a_sync_period_is_waited_for_whole() -> None:
    progress = AttemptProgress(began=0.0, warm_at=0.0, slowest_step_s=5.0)
    longer = hang_at(task(sync="local_sgd", sync_period=100), progress) - hang_at(task(), progress)
    assert longer == 2 * 99 * 5


def test_a_training_to_a_target_is_waited_for_with_what_it_costs() -> None:
    progress = AttemptProgress(began=0.0)
    training = replace(task(), target=0.5, train_s=1000.0)
    longer = hang_at(training, progress) - hang_at(task(), progress)
    assert longer == 1250.0
    warm = replace(progress, warm_at=longer + task().measure.max_warmup_seconds, slowest_step_s=1.0)
    assert collective_timeout_s(training) > hang_at(training, warm)


def test_turns_of_all_points_are_waited_for_in_each_of_the_least_cycles() -> None:
    progress = AttemptProgress(began=0.0, warm_at=0.0, slowest_step_s=2.0)
    others = [task(sync="local_sgd", sync_period=100), task()]
    in_turn = hang_at(replace(task(), in_turn=others), progress)
    # Three cycles and one more of 5, 100 and 5 steps; three windows, each half as long again.
    assert in_turn == 4 * (5 + 100 + 5) * 2 + 3 * 60 + 60


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        (["user_error"], 2.0),
        (["collateral"], 15.0),
        (["collateral", "collateral"], 15.0),
        (["collateral", "oom_device"], 2.0),
    ],
)
def test_a_rank_that_only_lost_its_peer_waits_for_ray_to_say_who_died(
    failures: list[str], seconds: float
) -> None:
    assert grace_s(failures) == seconds


def test_another_window_has_a_deadline_of_its_own_and_no_less_slack() -> None:
    first = AttemptProgress(began=0.0).at(100.0, warm_ups=[30.0], failures=[])
    assert first.at(120.0, warm_ups=[30.0], failures=[]) == first
    second = first.at(150.0, warm_ups=[30.0, 2.0], failures=[])
    assert hang_at(task(), second) == hang_at(task(), first) + 50.0


@pytest.mark.parametrize(
    "measure", [Measure(), MEASURE, Measure(max_seconds=900), Measure(max_warmup_seconds=3600)]
)
@pytest.mark.parametrize("point", [{}, {"sync": "local_sgd", "sync_period": 100}])
def test_a_collective_waits_longer_than_the_slot_for_steps_of_any_length(
    measure: Measure, point: dict[str, Any]
) -> None:
    one = replace(task(**point), measure=measure)
    began = AttemptProgress(began=0.0)
    for step_s in (0.001, 10.0, measure.max_warmup_seconds):
        warm = began.at(measure.max_warmup_seconds, warm_ups=[step_s], failures=[])
        assert collective_timeout_s(one) > hang_at(one, warm) > hang_at(one, began)


def test_the_grace_begins_with_the_first_failure_and_no_later_one_shortens_it() -> None:
    lost = AttemptProgress(began=0.0).at(100.0, warm_ups=[], failures=["collateral"])
    # Who waits for a rank that has failed hangs no more.
    assert (hang_at(task(), lost), lost.give_up_at) == (math.inf, 115.0)
    explained = lost.at(105.0, warm_ups=[], failures=["collateral", "user_error"])
    assert explained.give_up_at == 115.0
    assert set(explained.failures) == {"collateral", "user_error"}


def test_a_slot_has_longer_for_an_attempt_than_its_ranks_for_all_their_windows() -> None:
    slow = AttemptProgress(began=0.0, warm_at=100.0, slowest_step_s=100.0)
    three_windows = 100.0 + 3 * (hang_at(task(), slow) - 100.0)
    # Two starts of a session: nodes, imports, and the end of the one before.
    before, after = 2 * (300.0 + 600.0 + 60.0), 15.0 + 120.0 + 30.0
    bound_s = attempt_bound_s(task(), node_timeout_s=300.0)
    assert bound_s == before + three_windows + after
    # And time to start parameter servers.
    server = task(sync="parameter_server", shards=1)
    assert attempt_bound_s(server, node_timeout_s=300.0) - bound_s == 600.0
