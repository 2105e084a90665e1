"""What a slot takes from ranks, and the states of its sessions.

No Ray runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.train.v2.api.exceptions import PreemptionError
from ray.train.v2.api.preemption import PreemptionInfo

from dtsweep import Sweep
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.provenance.versions import versions
from dtsweep.session import session as session_module
from dtsweep.session.diagnosis import Diagnosis
from dtsweep.session.failed_starts import FailedStarts
from dtsweep.session.memory_kills import MemoryKills
from dtsweep.session.node_choice import FailureCounts
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.session import Session
from dtsweep.session.session_settings import Code, Settings
from dtsweep.session.slot import Slot
from dtsweep.session.start_errors import SessionError
from dtsweep.session.state import SessionState
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.task import Task, task_of
from tests.outcomes import Tokens, facts

OK, NAN = (RankResult(status=status) for status in ("ok", "nan"))


def settings(folder: Path) -> Settings:
    resources = {"cpus_per_worker": 1, "gpus_per_worker": 0}
    given: dict[str, Any] = {"environment": {}, "node_timeout_s": 1.0, "is_private": True}
    code = Code(pickled=b"", folder=None)
    return Settings(code=code, storage=str(folder), **resources, **given)


def task(**point: int) -> Task:
    of = Point(workload=Tokens(), **{"workers": 2, **point})
    return task_of(Sweep(workload=Tokens(), axes={}), of)


def session_in(state: SessionState, folder: Path) -> Session:
    session = Session("1", task().point.world, settings(folder), None)
    session.state = state
    return session


@pytest.fixture
def slot(session: Session, tmp_path: Path) -> Slot:
    """A slot with a session of two ranks, which are up; its trainer never ends by itself."""
    slot = Slot(settings(tmp_path))
    slot._session = session
    return slot


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return session_in(SessionState.RUNNING, tmp_path)


async def attempt(
    slot: Slot, session: Session, sent: RankResult, at_last: Callable[[], None] | None = None
) -> AttemptResult:
    """Run a task in a session both of whose ranks send this; then something may happen at once."""
    session.facts = {rank: facts(node_id="a") for rank in range(2)}
    one = task()
    running = asyncio.create_task(collected(slot, one))
    for rank in range(2):
        await session.inbox[rank].get()
    for rank in range(2):
        await slot.finished(session.name, one.attempt_id, rank, sent)
    if at_last is not None:
        at_last()
    return await running


def test_what_ranks_say_of_an_earlier_attempt_is_not_taken_for_this_one(
    slot: Slot, session: Session
) -> None:
    session.begin("now")

    async def say() -> None:
        for attempt, seconds in (("before", 9.0), ("now", 1.0)):
            for rank in range(2):
                await slot.warmed_up(session.name, attempt, rank, seconds + rank)
        await slot.finished(session.name, "before", 0, NAN)
        await slot.finished(session.name, "now", 1, OK)
        assert session.warm_ups() == [2.0]
        # Another window begins once all are warm again.
        await slot.warmed_up(session.name, "now", 0, 5.0)
        assert session.warm_ups() == [2.0]
        await slot.warmed_up(session.name, "now", 1, 3.0)

    asyncio.run(say())
    assert session.warm_ups() == [2.0, 5.0]
    assert session.results == {1: OK}


async def collected(slot: Slot, one: Task) -> AttemptResult:
    await slot.run(one)
    result = await slot.collect(one.attempt_id)
    assert result is not None
    return result


def test_a_slot_whose_session_does_not_end_is_spent_and_its_strikes_go_to_the_next(
    slot: Slot, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "CLOSE_S", 0.01)
    other = task(workers=3)
    for trial_id in ("one", "another"):
        slot._nodes.failures.died(trial_id, "a")
    # It was never asked for this.
    assert asyncio.run(slot.collect(other.attempt_id)) is None
    result = asyncio.run(collected(slot, other))
    assert (result.status, result.slot_is_spent) == ("collateral", True)
    assert result.session_has_ended
    assert result.reason == "the session before did not end; another process takes over"
    assert session.state is SessionState.STUCK
    # A node that was struck stays so for the process that takes the slot over.
    assert Slot(slot._settings, result.failure_counts)._nodes.failures.failing() == {"a"}


@pytest.mark.parametrize("ends", [False, True])
def test_an_attempt_whose_session_ends_with_it_is_measured_and_the_next_gets_another_one(
    slot: Slot, session: Session, ends: bool
) -> None:
    result = asyncio.run(attempt(slot, session, OK, session._trainer_ended if ends else None))
    assert (result.status, result.results) == ("ok", {0: OK, 1: OK})
    assert (result.session_has_ended, result.slot_is_spent) == (ends, False)


def test_a_process_that_a_trial_changed_gets_no_other_trial(slot: Slot, session: Session) -> None:
    changed = replace(OK, needs_new_process=True)
    assert asyncio.run(attempt(slot, session, changed)).session_has_ended


def test_ranks_that_keep_memory_of_a_trial_are_given_no_other(slot: Slot, session: Session) -> None:
    async def run() -> None:
        for left, keeps in ((7, False), (8, False), (9, True)):
            sent = RankResult(status="ok", memory_left_bytes=left, device_bytes=100)
            result = await attempt(slot, session, sent)
            assert (result.status, "memory_left" in result.flags) == ("ok", keeps)
            assert (result.session_has_ended, session.fits(task())) == (keeps, not keeps)

    asyncio.run(run())


def test_a_rank_that_can_not_use_its_device_any_more_ends_its_session(session: Session) -> None:
    session.begin("now")
    for broken in (False, True):
        for rank in range(2):
            session.take(rank, RankResult(status="user_error", position=7, is_spent=broken))
        assert session.is_in_step() is not broken


def test_a_death_as_a_session_starts_strikes_its_node_and_three_in_a_row_give_up_the_world(
    tmp_path: Path,
) -> None:
    failures = FailureCounts()
    starts = FailedStarts(failures)

    def not_up(status: str) -> tuple[str, str | None]:
        # Each start has a session of its own.
        session = Session("1", task().point.world, settings(tmp_path), None)
        verdict = Diagnosis(status=status, reason="rank 0 on a ended", rank=0, died_on="a")
        error = SessionError(
            status, "the workers did not start: rank 0 on a ended", verdict=verdict
        )
        result = starts.result_of(error, session)
        return result.status, result.hopeless_for

    assert not_up("rank_died") == ("rank_died", None)
    assert failures.failing() == frozenset()
    # What took the memory was not the trial, which gets its other attempts.
    assert not_up("oom_host") == ("collateral", None)
    assert failures.failing() == {"a"}
    assert not_up("preempted") == ("preempted", None)
    assert not_up("node_lost") == ("node_lost", None)
    assert not_up("rank_died") == ("launch_failed", "world")


def test_a_head_that_answers_with_an_error_ends_no_session_and_fails_a_start_that_is_tried_again(
    tmp_path: Path,
) -> None:
    watch = NodeWatch(replace(settings(tmp_path), is_private=False, node_timeout_s=1.0))
    # No Ray runs here, so that every question fails.
    assert asyncio.run(watch.stay(["a node"], until=0.0))
    with pytest.raises(SessionError, match="did not say in 1 s which nodes there are") as caught:
        asyncio.run(watch.choose(World(workers=1, placement="pack", environment=())))
    assert (caught.value.status, caught.value.hopeless_for) == ("collateral", None)


def test_what_the_kernel_killed_before_a_trial_is_not_counted_as_killed_in_it(
    slot: Slot, session: Session
) -> None:
    for count in (0, 1):
        session.inbox[0].put_nowait(None)
        kills = MemoryKills(path="memory.events", count=count)
        asyncio.run(slot.next_task(session.name, 0, kills))
    known = session._ranks().kills[0]
    assert known is not None
    assert known.count == 1


# The states of a session: their order, and marks that come too late

S = SessionState
LOST = RankResult(status="ok", is_spent=True)


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
