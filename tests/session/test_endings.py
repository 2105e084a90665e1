"""How a trainer ended, by Ray's own errors; no Ray runs here."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError, RayActorError
from ray.train import ControllerError, FailureConfig, WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError
from ray.train.v2.api.exceptions import PreemptionError
from ray.train.v2.api.preemption import PreemptionInfo

from dtsweep.session.endings import causes_of, has_lost_process, is_preempted
from dtsweep.session.trainer import no_restarts

RAISED = WorkerGroupError("", {1: ModuleNotFoundError("no module named my_model")})
DIED = WorkerGroupError("", {0: WorkerHealthCheckFailedError("no answer", ActorDiedError())})
RECLAIMED = WorkerGroupError("", {2: WorkerHealthCheckFailedError("no answer", RayActorError(preempted=True))})
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
    assert (sorted(causes_of(error)), is_preempted(error), has_lost_process(error)) == (ranks, preempted, lost)


def test_a_process_that_died_is_known_by_what_train_was_told() -> None:
    assert isinstance(causes_of(DIED)[0], ActorDiedError)


def test_train_restarts_no_worker_group_by_itself() -> None:
    config = FailureConfig(**no_restarts())
    assert (config.max_failures, config.controller_failure_limit, config.max_preemption_failures) == (0, 0, 0)
