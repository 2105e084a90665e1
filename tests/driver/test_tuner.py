"""Signals that end a run: the first is noted, another one ends it at once; no Ray runs here."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dtsweep import Measure, StorageError, Sweep
from dtsweep.driver.budget import Budget
from dtsweep.driver.heartbeat import ClusterGoneError
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.scheduler import Scheduler
from dtsweep.driver.signals import STOPPING, Interrupted, signals_noted
from dtsweep.driver.tuner import EachStep, stopped_on_error
from dtsweep.plan.plan import make_plan
from dtsweep.plan.trial import groups_of
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens

NO_LIMIT = Budget(elapsed_s=lambda: 0.0, first_trial_s=60.0)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    # These tests may themselves run under nohup.
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    assert {number: signal.getsignal(number) for number in STOPPING} == before
    signal.signal(signal.SIGHUP, outside)


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
    sweep = Sweep(workload=Tokens(), axes={})
    scheduler = Scheduler(
        Queue(sweep),
        [],
        Recorder(sweep, silent_outbox(Results(tmp_path / "r")), Progress(axes=[])),
    )
    gone = threading.Event()
    gone.set()
    with pytest.raises(ClusterGoneError):
        EachStep(scheduler, [signal.SIGTERM], gone, budget=NO_LIMIT).on_step_begin(0, [])
    # Nor has it looked at them before.
    assert scheduler._watched_at is None


def test_a_signal_ends_a_run_that_waits_although_nothing_runs(tmp_path: Path) -> None:
    sweep = Sweep(workload=Tokens(), axes={}, measure=Measure(repeats=1))
    groups = groups_of(make_plan(sweep, candidates(sweep), []).to_run, fresh=False)
    queue = Queue(sweep)
    queue.extend(groups, {})
    scheduler = Scheduler(
        queue,
        [],  # As if its slots were still ending sessions.
        Recorder(sweep, silent_outbox(Results(tmp_path / "r")), Progress(axes=[])),
    )
    signals: list[int] = []
    each_step = EachStep(scheduler, signals, threading.Event(), budget=NO_LIMIT)
    scheduler.while_waiting = partial(each_step.on_step_begin, 0, [])
    assert scheduler.suggest("next") is None
    signals.append(signal.SIGTERM)
    with pytest.raises(Interrupted):
        scheduler.suggest("next")


class Sessions(Scheduler):
    """Of a run on a cluster."""

    def __init__(self) -> None:
        self.are_stopped = False

    def stop(self) -> None:
        self.are_stopped = True


@pytest.mark.parametrize(
    ("error", "are_stopped"),
    # Between two Tuners, or as nothing is left, a signal ends the run where no callback sees it.
    [
        (Interrupted(signal.SIGINT), True),
        (StorageError("full"), True),
        (RuntimeError(), True),
        (ClusterGoneError(), False),
    ],
)
def test_a_run_that_ends_by_an_error_ends_its_sessions_unless_its_cluster_is_gone(
    error: BaseException, are_stopped: bool
) -> None:
    sessions = Sessions()
    with pytest.raises(type(error)), stopped_on_error(sessions):
        raise error
    assert sessions.are_stopped == are_stopped


def test_a_run_that_ends_in_order_has_closed_its_sessions_itself() -> None:
    sessions = Sessions()
    with stopped_on_error(sessions):
        pass
    assert not sessions.are_stopped
