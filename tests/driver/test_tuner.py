"""Signals that end a run: the first is noted, another one ends it at once; no Ray runs here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from dtsweep.driver.tuner import STOPPING, signals_noted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    # These tests may themselves run under nohup.
    outside = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    assert {number: signal.getsignal(number) for number in STOPPING} == before
    signal.signal(signal.SIGHUP, outside)


@pytest.mark.parametrize("number", STOPPING)
def test_the_first_signal_is_noted_and_the_second_interrupts_at_once_without_ending_the_process(number: int) -> None:
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
