"""What is said of ranks that don't answer; no Ray runs here."""

from __future__ import annotations

import asyncio

import pytest

from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.diagnosis import Diagnosis, Ranks, ended_as, phase_of, verdict_on
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import task_of
from tests.outcomes import Tokens

OK, LOST, NAN = (RankResult(status=status) for status in ("ok", "collateral", "nan"))
HANG = Diagnosis(status="hang", reason="no answer from rank 1")


def test_a_rank_is_named_as_its_trial_knows_it() -> None:
    ranks = Ranks(facts={}, members=[1, 3], kills={})
    assert ranks.named(3, "host") == "rank 1 on host"
    assert ranks.named(0, "host") == "process 0 of the session, idle in this trial, on host"


@pytest.mark.parametrize(
    ("verdict", "results", "status"),
    [
        (None, {0: OK, 1: OK}, "ok"),
        (None, {0: LOST, 1: NAN}, "nan"),
        (HANG, {0: OK}, "hang"),
        # All came to their end while they were asked for their stacks.
        (HANG, {0: OK, 1: OK}, "ok"),
        (Diagnosis(status="rank_died", reason="process 2 ended"), {0: LOST, 1: LOST}, "rank_died"),
    ],
)
def test_an_attempt_ended_as_its_ranks_say_where_all_came_to_their_end(
    verdict: Diagnosis | None, results: dict[int, RankResult], status: str
) -> None:
    assert ended_as(verdict, results, workers=2)[0] == status


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (0, "600 s of warm-up"),
        (9, "max_warmup_seconds=600 (raise it, or take fewer than the 9 steps before the warm-up)"),
    ],
)
def test_the_limit_of_a_warm_up_is_named_with_what_comes_before_it(steps: int, words: str) -> None:
    sweep = Sweep(workload=Tokens(), axes={})
    point = Point(sync="local_sgd", synchronous_steps=steps, workload=Tokens())
    assert phase_of(task_of(sweep, point), is_warm=False) == words


BY_CONTROLLER = "Training failed due to controller error:\n\nThe actor died.\nIts logs"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # A reason goes on where its first line ends at a colon.
        (RuntimeError(BY_CONTROLLER), "Training failed due to controller error: The actor died."),
        (None, "no reason given"),
    ],
)
def test_a_trainer_that_ended_by_itself_is_said_to_have(
    error: RuntimeError | None, reason: str
) -> None:
    verdict = asyncio.run(verdict_on(error, Ranks(facts={}, members=[], kills={})))
    assert verdict.reason == f"the trainer ended: {reason}"
