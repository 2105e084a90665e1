"""The states of a session: their order, and marks that come too late. No Ray runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ray.train.v2.api.exceptions import PreemptionError
from ray.train.v2.api.preemption import PreemptionInfo

from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.provenance.versions import versions
from dtsweep.session.session import Session, SessionError
from dtsweep.session.state import SessionState
from tests.outcomes import facts
from tests.session.test_slot import settings, task

S = SessionState
LOST = RankResult(status="ok", is_spent=True)


def session_in(state: SessionState, folder: Path) -> Session:
    session = Session("1", task().point.world, settings(folder), None)
    session.state = state
    return session


@pytest.mark.parametrize(
    ("state", "after"),
    [
        *[(state, S.DIED) for state in (S.STARTING, S.RUNNING, S.STALE, S.DEVICE_LOST)],
        *[(state, S.ENDED) for state in (S.CLOSING, S.KILLING)],
        # Its slot's process has been given up.
        (S.STUCK, S.STUCK),
    ],
)
def test_a_trainer_that_was_not_asked_to_end_has_died(
    state: SessionState, after: SessionState, tmp_path: Path
) -> None:
    session = session_in(state, tmp_path)
    session._trainer_ended()
    assert session.state is after


LATE: list[Callable[[Session], object]] = [
    lambda session: session.retire(),
    lambda session: session.take(0, LOST),
    lambda session: session._to(S.RUNNING),
]


@pytest.mark.parametrize("mark", LATE)
@pytest.mark.parametrize("state", [S.DIED, S.CLOSING, S.KILLING, S.ENDED, S.STUCK])
def test_what_is_noted_of_a_session_that_ends_changes_nothing_and_raises_nothing(
    state: SessionState, mark: Callable[[Session], object], tmp_path: Path
) -> None:
    session = session_in(state, tmp_path)
    mark(session)
    assert session.state is state


@pytest.mark.parametrize("state", S)
def test_a_result_is_taken_in_every_state(state: SessionState, tmp_path: Path) -> None:
    session = session_in(state, tmp_path)
    session.take(1, LOST)
    assert session.results == {1: LOST}
    assert session.state is (S.DEVICE_LOST if state is S.RUNNING else state)


@pytest.mark.parametrize("state", [S.SCHEDULING, S.DIED])
@pytest.mark.parametrize("end", [Session.close, Session.kill])
def test_a_session_without_a_trainer_is_not_waited_for(
    state: SessionState, end: Callable[[Session], object], tmp_path: Path
) -> None:
    session = session_in(state, tmp_path)
    asyncio.run(asyncio.wait_for(end(session), 1.0))  # type: ignore[arg-type]  # a coroutine
    assert session.state is S.ENDED


def test_a_session_that_was_ended_before_its_nodes_came_starts_nothing(tmp_path: Path) -> None:
    session = session_in(S.ENDED, tmp_path)
    with pytest.raises(SessionError, match="the session was ended before its nodes had come"):
        asyncio.run(session.start())


class Scripted(Session):
    """A session whose ranks come up at these places; then its trainer may end."""

    places: Sequence[RankFacts] = ()

    def _fit(self, loop: asyncio.AbstractEventLoop, without: object) -> None:
        loop.call_soon_threadsafe(self.come)

    def come(self) -> None:
        for rank, place in enumerate(self.places):
            self.register(rank, place, None, {})
        if self._error is not None:
            self._trainer_ended()


def test_ranks_that_came_up_as_their_session_ended_are_given_no_task(tmp_path: Path) -> None:
    session = Scripted("1", task().point.world, settings(tmp_path), None)
    session.places = [facts(node_id="a", machine={})] * 2
    notice = PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"a": [1]})
    session._error = PreemptionError(notice)
    with pytest.raises(SessionError, match="did not start: the node of rank 1 on one was") as up:
        asyncio.run(session.start())
    assert up.value.status == "preempted"
    assert session.state is S.DIED


def test_ranks_on_one_gpu_are_refused_before_nccl_is_used(tmp_path: Path) -> None:
    session = Scripted("1", task().point.world, settings(tmp_path), None)
    # Two slices.
    session.places = [
        facts(machine=versions(), device_uuid=uuid, pci_bus_id="0000:1b:00.0")
        for uuid in ("MIG-0", "MIG-1")
    ]
    with pytest.raises(SessionError, match=r"ranks 0 and 1 on one have the same GPU") as refused:
        asyncio.run(session.start())
    assert (refused.value.status, refused.value.hopeless_for) == ("infeasible", "world")
