"""Clocks: what was marked adds up. A GPU's stream is stood in for; tests/gpu has the real one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtsweep.measure.clock import CpuClock, CudaClock, Times
from dtsweep.results.statuses import PHASE_MEANINGS
from tests.stand_in_stream import Machine, machine

__all__ = ["machine"]

PHASES = tuple(PHASE_MEANINGS)


def columns(times: Times) -> dict[str, list[float]]:
    return {name: list(values) for name, values in times.items()}


def test_a_step_ends_where_the_next_begins_and_its_phases_add_up_to_it() -> None:
    readings = (100, 101, 103, 106, 110, 111, 112, 114, 120, 200, 203, 203)
    clock, known = CpuClock(iter(readings).__next__), list[list[float]]()
    clock.start()
    for phases in (["data", "forward", "backward"], ["data", "forward", "data", "forward"]):
        for phase in phases:
            clock.mark(phase)
        # A step under way has not ended.
        known.append(list(clock.so_far()))
        clock.end_step()
        known.append(list(clock.so_far()))
    assert known == [[], [6], [6], [6, 8]]
    assert clock.stop() == 20
    first = clock.times()
    both = {"start_s": [0, 6], "step_s": [6, 8]}
    phases_s = {"data_s": [1, 4 + 1], "forward_s": [2, 1 + 2], "backward_s": [3, 0]}
    assert columns(first) == both | phases_s
    assert clock.most_idle() == {}
    # Started again it begins anew, and leaves what it gave alone.
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.stop()
    assert (clock.began, columns(clock.times())["step_s"]) == (200, [3])
    assert columns(first) == both | phases_s


# A GPU's


@pytest.fixture
def clock(machine: Machine) -> CudaClock:
    return CudaClock(torch.device("cuda", 0), machine.event, machine.now)


def queue(clock: CudaClock, machine: Machine, step: Sequence[tuple[str, float]]) -> None:
    """Give the device the phases of a step, in seconds."""
    for phase, seconds in step:
        machine.launch(seconds)
        clock.mark(phase)
    clock.end_step()


def steps_ahead(machine: Machine, ends: Sequence[float]) -> int:
    """Number of steps that the device has not ended."""
    return sum(end > machine.host for end in ends)


def test_on_a_gpu_too_phases_add_up_to_steps_as_the_device_saw_them(
    clock: CudaClock, machine: Machine
) -> None:
    clock.start()
    step = [("data", 1), ("forward", 2), ("data", 3), ("forward", 4), ("optimizer", 5)]
    queue(clock, machine, step)
    queue(clock, machine, [("forward", 6), ("sync", 7)])
    # What follows the last step belongs to none.
    machine.launch(50)
    clock.mark("backward")
    clock.stop()
    assert columns(clock.times()) == {
        "start_s": [0, 15],
        "step_s": [15, 13],
        "data_s": [4, 0],
        "forward_s": [6, 6],
        "sync_s": [0, 7],
        "optimizer_s": [5, 0],
    }


PHASE = st.tuples(st.sampled_from(PHASES), st.floats(0, 1))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.lists(PHASE, min_size=1, max_size=8), min_size=1, max_size=20),
    least_s=st.sampled_from([0, 0.05]),
    pause_s=st.floats(0, 3),
)
def test_however_far_the_device_is_behind_no_time_is_lost_and_it_is_never_4_long_steps(
    clock: CudaClock,
    machine: Machine,
    steps: Sequence[Sequence[tuple[str, float]]],
    least_s: float,
    pause_s: float,
) -> None:
    clock.start()
    ends = [machine.ends()]
    for step in steps:
        queue(clock, machine, [(phase, least_s + seconds) for phase, seconds in step])
        ends.append(machine.ends())
        assert not least_s or steps_ahead(machine, ends) <= 4
        machine.host += pause_s
    clock.stop()
    times = clock.times()
    assert list(times["step_s"]) == pytest.approx(list(np.diff(ends)), abs=1e-9)
    measured = [times[f"{phase}_s"] for phase in PHASES if f"{phase}_s" in times]
    assert list(np.sum(measured, axis=0)) == pytest.approx(list(np.diff(ends)), abs=1e-9)


def test_a_host_that_waits_leaves_4_steps_to_a_slow_device_which_then_never_waits_for_it(
    clock: CudaClock, machine: Machine
) -> None:
    clock.start()
    ahead, ends = list[int](), list[float]()
    for _ in range(10):
        queue(clock, machine, [("forward", 3)])
        ends.append(machine.ends())
        ahead.append(steps_ahead(machine, ends))
    assert ahead == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert machine.waits == 6
    clock.stop()
    # But for the first, whose queue was empty.
    assert clock.most_idle()["forward_s"][1:].sum() == 0


@pytest.mark.parametrize(
    ("step_s", "most"), [(1 / 1024, 204), (1 / 128, 25), (1 / 32, 6), (1 / 16, 4), (1, 4)]
)
def test_a_host_may_be_a_fifth_of_a_second_ahead_of_a_device_whose_steps_are_short(
    clock: CudaClock, machine: Machine, step_s: float, most: int
) -> None:
    clock.start()
    ahead, ends = list[int](), list[float]()
    for _ in range(300):
        queue(clock, machine, [("forward", step_s)])
        ends.append(machine.ends())
        ahead.append(steps_ahead(machine, ends))
    assert max(ahead) == most


@pytest.mark.parametrize("marks", [1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, CudaClock.RING + 7])
def test_a_host_that_is_a_whole_ring_ahead_waits_for_the_oldest_mark_and_loses_none(
    clock: CudaClock, machine: Machine, marks: int, more: int
) -> None:
    clock.start()
    steps = CudaClock.RING // marks + more
    lengths = [(number % 7 + 1) / 2**17 for number in range(steps)]
    for seconds in lengths:
        queue(clock, machine, [("forward", seconds)] * marks)
    # One event is the start's; the marks of the first step are waited for in any case.
    assert machine.waits == max(marks, steps * marks + 1 - CudaClock.RING)
    clock.stop()
    assert list(clock.times()["step_s"]) == pytest.approx([marks * one for one in lengths])
    assert machine.events == CudaClock.RING


def test_steps_are_known_when_the_device_has_passed_them_and_not_before(
    clock: CudaClock, machine: Machine
) -> None:
    clock.start()
    known = []
    for passed in (0, 0, 3, 20, 5):
        machine.host += passed
        queue(clock, machine, [("forward", 4), ("backward", 6)])
        known.append(list(clock.so_far()))
    # At 23 and at 28 s two steps and a half have ended.
    assert known == [[], [], [], [10, 10], [10, 10]]
    clock.stop()
    assert list(clock.so_far()) == [10] * 5
    assert machine.waits == 0


@pytest.mark.parametrize(("host_s", "idle_s"), [(3, 0), (7, 7)])
def test_a_device_can_only_be_idle_in_a_phase_that_it_began_before_all_of_it_was_queued(
    clock: CudaClock, machine: Machine, host_s: float, idle_s: float
) -> None:
    clock.start()
    for _ in range(8):
        machine.launch(5, host_s)
        clock.mark("forward")
        clock.end_step()
    clock.stop()
    # At most the host's time for it. The first two steps begin on an idle device.
    assert list(clock.most_idle()["forward_s"][2:]) == [idle_s] * 6


def test_a_gpus_clock_begins_anew_on_the_same_events(clock: CudaClock, machine: Machine) -> None:
    for seconds in (2 / 2**16, 3 / 2**16, 4 / 2**16):
        clock.start()
        for _ in range(CudaClock.RING - 1):
            queue(clock, machine, [("forward", seconds)])
        # An unfinished window leaves its marks behind.
        if seconds != 3 / 2**16:
            clock.stop()
            assert list(clock.times()["step_s"]) == [seconds] * (CudaClock.RING - 1)
    assert machine.events == CudaClock.RING
