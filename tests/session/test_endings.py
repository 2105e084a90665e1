"""How a session ended, by Ray's own errors and by what its ranks say; no Ray runs here."""

from __future__ import annotations

import asyncio
import re

import pytest
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError
from ray.train import ControllerError, FailureConfig, WorkerGroupError
from ray.train.v2._internal.exceptions import (
    InsufficientClusterResourcesError,
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
)
from ray.train.v2.api.exceptions import PreemptionError
from ray.train.v2.api.preemption import PreemptionInfo

from dtsweep.metrics.rank_result import RankResult
from dtsweep.results.statuses import FINAL
from dtsweep.session.diagnosis import Diagnosis, Ranks, ended_as, phase_of, verdict_on
from dtsweep.session.endings import (
    causes_of,
    has_lost_process,
    is_preempted,
    not_up_again,
    why_not_up,
)
from dtsweep.session.trainer import no_restarts
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import task_of
from tests.outcomes import Tokens

RAISED = WorkerGroupError("", {1: ModuleNotFoundError("no module named my_model")})
DIED = WorkerGroupError("", {0: WorkerHealthCheckFailedError("no answer", ActorDiedError())})
GONE = WorkerHealthCheckFailedError("no answer", RayActorError(preempted=True))
RECLAIMED = WorkerGroupError("", {2: GONE})
NOTICED = PreemptionError(PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"a": [3, 2]}))
NO_RANKS = ControllerError(RuntimeError("no placement"))


@pytest.mark.parametrize(
    ("error", "ranks", "preempted", "lost"),
    [
        (RAISED, [1], False, False),
        (DIED, [0], False, True),
        (RECLAIMED, [2], True, True),
        (NOTICED, [2, 3], True, True),
        (NO_RANKS, [], False, False),
        (None, [], False, False),
    ],
)
def test_an_error_says_which_ranks_ended_whether_from_outside_and_whether_their_node_was_taken_back(
    error: BaseException | None, ranks: list[int], preempted: bool, lost: bool
) -> None:
    assert sorted(causes_of(error)) == ranks
    assert (is_preempted(error), has_lost_process(error)) == (preempted, lost)


def test_train_restarts_no_worker_group_by_itself() -> None:
    config = FailureConfig(**no_restarts())
    assert config.max_failures == config.max_preemption_failures == 0
    assert config.controller_failure_limit == 0


NO_TIMM = ModuleNotFoundError("No module named 'timm.models'", name="timm.models")
NO_PACKAGE = WorkerGroupError("", {1: NO_TIMM})


def no_group(error: Exception) -> ControllerError:
    """What Train raises where a process group could not be made."""
    said = f"Traceback …\n  dist.init_process_group(\n{type(error).__name__}: {error}"
    return ControllerError(RayTaskError("_setup_torch_process_group", said, error))


NO_GROUP = no_group(RuntimeError("Unable to find address for: eth7"))
NO_NCCL = no_group(RuntimeError("Distributed package doesn't have NCCL built in"))
NO_CUDA = no_group(ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!"))
NO_DRIVER = WorkerGroupError("", {0: RuntimeError("the driver is too old\nat all")})

TOO_LARGE = ControllerError(
    InsufficientClusterResourcesError("Insufficient …\nit requires 9 GPUs\nPlease reduce …")
)
TOO_LATE = ControllerError(WorkerGroupStartupTimeoutError(2))


@pytest.mark.parametrize(
    ("error", "status", "hopeless_for", "says"),
    [
        (NO_PACKAGE, "launch_failed", "run", "rank 1: ModuleNotFoundError.*install 'timm' on all"),
        (NO_DRIVER, "launch_failed", "world", "rank 0: RuntimeError: the driver is too old"),
        (NO_GROUP, "launch_failed", "world", "for: eth7.*GLOO_SOCKET_IFNAME.*NCCL_SOCKET_IFNAME"),
        (NO_NCCL, "launch_failed", "world", "a GPU that torch.*NCCL built in.*dtsweep doctor"),
        (NO_CUDA, "launch_failed", "world", "no GPUs found.*nvidia-smi.*gpus_per_worker=0"),
        (TOO_LATE, "no_nodes", "world", "2 workers did not come in 7 s"),
        (TOO_LARGE, "infeasible", "world", "it requires 9 GPUs"),
    ],
)
def test_a_launch_that_would_fail_again_says_why_and_whose_trials_it_is_hopeless_for(
    error: BaseException, status: str, hopeless_for: str, says: str
) -> None:
    known = why_not_up(error, workers=2, node_timeout_s=7.0)
    assert known is not None
    assert (known.status, known.hopeless_for) == (status, hopeless_for)
    # In one line.
    assert re.search(says, known.reason), known.reason
    assert "\n" not in known.reason
    # The same command measures them once it is mended.
    assert status not in FINAL


def test_a_start_that_was_ended_from_outside_is_tried_as_often_as_a_trial() -> None:
    *tried, last = (
        not_up_again("rank_died", "rank 0 on a ended", deaths=deaths) for deaths in (1, 2, 3)
    )
    assert [(each.status, each.hopeless_for) for each in tried] == [("rank_died", None)] * 2
    assert (last.status, last.hopeless_for) == ("launch_failed", "world")
    assert last.reason == "rank 0 on a ended; 3 starts in a row ended so"


STARTUP_DIED = ControllerError(WorkerGroupStartupFailedError("died"))
PEER_ENDED = no_group(RuntimeError("[tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:9"))
PORT_TAKEN = no_group(
    RuntimeError("failed to listen (errno: 98 - EADDRINUSE: address already in use)")
)


@pytest.mark.parametrize("error", [DIED, RECLAIMED, NOTICED, STARTUP_DIED, PEER_ENDED, PORT_TAKEN])
def test_a_launch_whose_processes_were_ended_from_outside_may_come_up_the_next_time(
    error: BaseException,
) -> None:
    assert why_not_up(error, workers=2, node_timeout_s=7.0) is None


# Ranks that don't answer

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
