"""When sessions and attempts begin and end, by nodes, time and signals; no Ray runs here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock, create_autospec

import pytest

from dtsweep import Measure, Resources, StorageError, Sweep
from dtsweep.cluster.heartbeat import ClusterGoneError
from dtsweep.driver.attempts import Attempts
from dtsweep.driver.budget import Budget
from dtsweep.driver.placement import Placement, StayingNodes
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.running import Running, overdue, without_head
from dtsweep.driver.signals import STOPPING, Interrupted, signals_noted
from dtsweep.driver.slots import SlotActor
from dtsweep.driver.tuner import EachStep, Scheduler, stopped_on_error
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.plan.allotment import NodePool
from dtsweep.plan.plan import make_plan
from dtsweep.plan.trial import Trial, groups_of
from dtsweep.results.statuses import is_retried
from dtsweep.results.store import Results
from dtsweep.session.deadlines import attempt_bound_s
from dtsweep.session.node_choice import FailureCounts
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.task import task_of
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens
from tests.session.test_slot import settings


def queue_of(workers: list[int], *, slots: int = 1) -> Queue:
    """A session for each of these worlds."""
    sweep = Sweep(
        workload=Tokens(),
        axes={"workers": workers},
        measure=Measure(repeats=1),
        resources=Resources(concurrent=slots),
    )
    queue = Queue(sweep, slots=slots)
    queue.extend(groups_of(make_plan(sweep, candidates(sweep), []).to_run, fresh=False), {})
    return queue


def recorder_in(folder: Path) -> Recorder:
    sweep = Sweep(workload=Tokens(), axes={})
    return Recorder(sweep, silent_outbox(Results(folder / "r")), Progress(axes=[]))


def test_an_attempt_is_overdue_once_all_deadlines_of_its_session_have_passed(
    tmp_path: Path,
) -> None:
    running = under_way()
    bound_s = attempt_bound_s(running.task, node_timeout_s=1.0)
    running.watched_s = bound_s - 1.0
    assert overdue(running, settings(tmp_path)) is None
    running.watched_s = bound_s
    said = overdue(running, settings(tmp_path))
    late = f"the session was not done with the attempt after {bound_s:.0f} s"
    assert said == f"{late}, all its deadlines together"


def test_an_attempt_whose_result_could_not_be_fetched_is_known_as_not_stored(
    tmp_path: Path,
) -> None:
    attempts = Attempts(queue_of([1]), [], recorder_in(tmp_path))
    scheduler = Scheduler(attempts)
    attempts.running["tune's name"] = attempt = under_way()
    # It has no slot that could be asked, as where the cluster is gone.
    scheduler.on_trial_complete("tune's name")
    assert isinstance(attempts.failure, IndexError)
    assert attempts.unstored == [attempt]
    # Tune is told to end, not to wait for it.
    assert scheduler.suggest("next") == Scheduler.FINISHED


def test_what_ended_while_the_head_was_silent_is_measured_again() -> None:
    lost = without_head(AttemptResult(status="ok"))
    assert (lost.status, is_retried(lost.status, attempt=1)) == ("node_lost", True)
    # What failed by itself says more.
    assert without_head(AttemptResult(status="user_error", reason="why")).reason == "why"


def under_way() -> Running:
    """An attempt that began."""
    point = Point(workload=Tokens())
    task = task_of(Sweep(workload=Tokens(), axes={}), point)
    trial = Trial(trial_id="t", point=point, repeat=1, why="")
    return Running(trial=trial, task=task, slot=0, began=1000.0, started_at=datetime.now(UTC))


# Nodes of sessions


class Staying(StayingNodes):
    """Nodes that stay, which a test changes."""

    def __init__(self, rooms: Mapping[str, int]) -> None:
        super().__init__({"CPU": 1}, shares_nodes=False)
        self.rooms = rooms

    def pool(self, waiting: Sequence[World], failures: FailureCounts) -> NodePool:
        return NodePool(rooms=self.rooms)


class Actor:
    """Actor of a slot, without a process."""

    def __init__(self) -> None:
        self.end_session = Mock()


class Made:
    """Placement of one session for each of these worlds, on two slots without a process."""

    def __init__(self, folder: Path, nodes: StayingNodes, *, workers: list[int]) -> None:
        self.queue, of_slots = queue_of(workers, slots=2), settings(folder)
        self.slots = [
            SlotActor(index=index, actor=Actor(), name=f"slot {index}", settings=of_slots)
            for index in range(2)
        ]
        self.recorder = recorder_in(folder)
        self.placement = Placement(self.queue, self.slots, self.recorder, nodes)

    @property
    def with_nodes(self) -> list[int]:
        return [slot.index for slot in self.slots if slot.has_nodes]

    @property
    def ended(self) -> list[int]:
        """How often each slot was told to end its session."""
        return [slot.actor.end_session.remote.call_count for slot in self.slots]


def test_nodes_of_a_session_that_must_leave_are_free_for_others_only_once_it_has_ended(
    tmp_path: Path,
) -> None:
    nodes = Staying({"a": 1, "b": 1})
    run = Made(tmp_path, nodes, workers=[2, 1])
    run.placement.begin_sessions()
    assert run.slots[0].places == {"a": 1, "b": 1}
    nodes.rooms = {"a": 1, "c": 1}
    run.placement.begin_sessions()
    # The rest of the session gets others after that, and before any other session.
    assert run.with_nodes == []
    assert run.ended == [1, 0]


def test_the_largest_world_begins_first_and_a_smaller_one_takes_what_it_leaves(
    tmp_path: Path,
) -> None:
    run = Made(tmp_path, Staying({"a": 1, "b": 1, "c": 1}), workers=[3, 2, 1])
    run.placement.begin_sessions()
    assert (run.with_nodes, run.slots[0].places) == ([0], {"a": 1, "b": 1, "c": 1})
    # As if it had begun with two workers.
    run.slots[0].places = {"a": 1, "b": 1}
    run.placement.begin_sessions()
    assert (run.with_nodes, run.slots[1].places) == ([0, 1], {"c": 1})
    assert [world.workers for world in run.queue.waiting_worlds()] == [2]


def test_no_session_is_refused_before_the_head_has_said_which_nodes_there_are(
    tmp_path: Path,
) -> None:
    # No Ray runs here, so that every question fails.
    run = Made(tmp_path, StayingNodes({"CPU": 1}, shares_nodes=False), workers=[1])
    run.placement.begin_sessions()
    assert (run.with_nodes, run.queue.waiting) == ([], 1)


def test_a_session_ends_while_the_last_attempt_of_another_one_runs(tmp_path: Path) -> None:
    run = Made(tmp_path, Staying({"a": 1, "b": 1}), workers=[1])
    attempts = Attempts(run.queue, [], run.recorder)
    attempts._placement = run.placement
    run.placement.begin_sessions()
    run.queue.next(0, now=0.0)
    # Slot 0 is done; an attempt of slot 1 is the last one.
    attempts.running["tune's name"] = under_way()
    assert Scheduler(attempts).suggest("next") is None
    assert run.ended == [1, 0]


# Signals

NO_LIMIT = Budget(elapsed_s=lambda: 0.0, first_trial_s=60.0)


@pytest.fixture
def handlers() -> Iterator[None]:
    # These tests may themselves run under nohup.
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    assert {number: signal.getsignal(number) for number in STOPPING} == before
    signal.signal(signal.SIGHUP, outside)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", STOPPING)
def test_the_first_signal_is_noted_and_the_second_interrupts_at_once_without_ending_the_process(
    number: int,
) -> None:
    with signals_noted() as signals:
        os.kill(os.getpid(), number)
        assert signals == [number]
        # In a notebook this must leave the kernel and its variables alone.
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
            pytest.fail("nothing was raised")
        assert signals == [number, number]


@pytest.mark.usefixtures("handlers")
def test_a_run_under_nohup_goes_on_when_its_terminal_ends() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_noted() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_once_its_cluster_is_gone_a_tuner_asks_no_slot_for_anything_even_after_a_signal(
    tmp_path: Path,
) -> None:
    attempts = Attempts(queue_of([1]), [], recorder_in(tmp_path))
    gone = threading.Event()
    gone.set()
    with pytest.raises(ClusterGoneError):
        EachStep(attempts, [signal.SIGTERM], gone, budget=NO_LIMIT).on_step_begin(0, [])
    # Nor has it looked at them before.
    assert attempts._watched_at is None


def test_a_signal_ends_a_run_that_waits_although_nothing_runs(tmp_path: Path) -> None:
    # As if its slots were still ending sessions.
    attempts = Attempts(queue_of([1]), [], recorder_in(tmp_path))
    scheduler = Scheduler(attempts)
    signals: list[int] = []
    each_step = EachStep(attempts, signals, threading.Event(), budget=NO_LIMIT)
    scheduler.while_waiting = partial(each_step.on_step_begin, 0, [])
    assert scheduler.suggest("next") is None
    signals.append(signal.SIGTERM)
    with pytest.raises(Interrupted):
        scheduler.suggest("next")


@pytest.mark.parametrize(
    ("error", "are_stopped"),
    # Between two Tuners, or as nothing is left, a signal ends the run where no callback sees it.
    [
        (Interrupted(signal.SIGINT), True),
        (StorageError("full"), True),
        (RuntimeError(), True),
        (ClusterGoneError(), False),
        # It has closed its sessions itself.
        (None, False),
    ],
)
def test_a_run_that_ends_by_an_error_ends_its_sessions_unless_its_cluster_is_gone(
    error: BaseException | None, are_stopped: bool
) -> None:
    sessions = create_autospec(Attempts, instance=True)
    ends = pytest.raises(type(error)) if error else nullcontext()
    with ends, stopped_on_error(sessions):
        if error:
            raise error
    assert sessions.stop.called == are_stopped
