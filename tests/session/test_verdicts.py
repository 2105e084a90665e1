"""Verdicts on sessions whose trainer ended with several ranks, from their logs on a Ray's node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayActorError
from ray.train import WorkerGroupError

from dtsweep.cluster.connect import connected
from dtsweep.session.diagnosis import Diagnosis, Ranks, verdict_on
from tests.outcomes import facts
from tests.session.test_last_words import BY_WATCHDOG, KILLED, LOST_PEER, TIMED_OUT

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def here(ray_address: str) -> Iterator[str]:
    """The id of a Ray's one node."""
    with connected(ray_address, folder=None):
        yield ray.get_runtime_context().get_node_id()


def verdict(folder: Path, here: str, logs: dict[int, str], *, members: range) -> Diagnosis:
    """Verdict on four ranks, of which those with a log have died."""
    for rank, log in logs.items():
        (folder / f"{rank}.log").write_text(log)
    own = {rank: facts(node_id=here, log=str(folder / f"{rank}.log")) for rank in range(4)}
    error = WorkerGroupError("", {rank: RayActorError() for rank in logs})
    return asyncio.run(verdict_on(error, Ranks(facts=own, members=members, kills={})))


ALL = range(4)


CASES: list[tuple[dict[int, str], range, Diagnosis]] = [
    (
        {0: LOST_PEER, 1: TIMED_OUT, 3: KILLED},
        ALL,
        Diagnosis(status="rank_died", reason="rank 3 on one ended", rank=3, died_on="here"),
    ),
    (
        {0: LOST_PEER, 2: BY_WATCHDOG, 3: LOST_PEER},
        ALL,
        Diagnosis(
            status="user_error",
            reason="rank 2 on one ended: in a kernel: Assertion `srcIndex < srcSelectDimSize` "
            "failed (net.py:30)",
            rank=2,
        ),
    ),
    (
        {0: LOST_PEER, 1: TIMED_OUT},
        ALL,
        Diagnosis(
            status="rank_died",
            reason="rank 0 on one, rank 1 on one ended, by their logs because a peer was gone",
        ),
    ),
    # What it wrote was of an earlier trial: it had none now.
    (
        {3: BY_WATCHDOG},
        range(2),
        Diagnosis(
            status="rank_died",
            reason="process 3 of the session, idle in this trial, on one ended",
            rank=3,
            died_on="here",
        ),
    ),
]


@pytest.mark.parametrize(("logs", "members", "expected"), CASES)
def test_the_rank_that_ended_first_is_named_and_its_node_blamed_unless_a_kernel_failed(
    tmp_path: Path, here: str, logs: dict[int, str], members: range, expected: Diagnosis
) -> None:
    if expected.died_on is not None:
        expected = replace(expected, died_on=here)
    assert verdict(tmp_path, here, logs, members=members) == expected
