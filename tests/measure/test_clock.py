"""Clocks: what was marked adds up. A GPU's stream is stood in for; tests/gpu has the real one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtsweep.measure.clock import CpuClock, CudaClock
from dtsweep.results.statuses import PHASE_MEANINGS

PHASES = tuple(PHASE_MEANINGS)

# A processor's


def ticking(*times: float) -> Callable[[], float]:
    return iter(times).__next__


def test_a_step_ends_where_the_next_begins_and_its_phases_add_up_to_it() -> None:
    clock = CpuClock(ticking(100, 101, 103, 106, 110, 111, 112, 114, 120))
    clock.start()
    for phases in (["data", "forward", "backward"], ["data", "forward", "data", "forward"]):
        for phase in phases:
            clock.mark(phase)
        clock.end_step()
    assert clock.stop() == 20
    times = clock.times()
    assert list(times["start_s"]) == [0, 6]
    assert list(times["step_s"]) == [6, 8]
    assert [list(times[name]) for name in ("data_s", "forward_s", "backward_s")] == [
        [1, 4 + 1],
        [2, 1 + 2],
        [3, 0],
    ]


def test_a_phase_that_no_step_had_is_absent_and_one_that_some_had_is_zero_in_the_others() -> None:
    clock = CpuClock(ticking(0, 1, 2, 4, 4))
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.mark("forward")
    clock.mark("sync")
    clock.end_step()
    clock.stop()
    times = clock.times()
    assert set(times) == {"start_s", "step_s", "forward_s", "sync_s"}
    assert list(times["sync_s"]) == [0, 2]


def test_steps_that_ended_are_known_at_once() -> None:
    clock = CpuClock(ticking(100, 101, 103, 104))
    clock.start()
    known = [list(clock.so_far())]
    for _ in range(2):
        clock.mark("forward")
        clock.end_step()
        known.append(list(clock.so_far()))
    # A step under way has not ended.
    clock.mark("forward")
    assert [*known, list(clock.so_far())] == [[], [1], [1, 2], [1, 2]]
    assert clock.most_idle() == {}


Steps = list[list[tuple[str, int]]]

any_steps = st.lists(
    st.lists(st.tuples(st.sampled_from(PHASES), st.integers(0, 1000)), min_size=1, max_size=8),
    min_size=1,
    max_size=9,
)


@settings(deadline=None)
@given(any_steps)
def test_phases_make_up_steps_and_steps_make_up_the_window(steps: Steps) -> None:
    readings = itertools.accumulate(seconds for step in steps for _, seconds in step)
    end = sum(seconds for step in steps for _, seconds in step)
    clock = CpuClock(ticking(0, *readings, end))
    clock.start()
    for step in steps:
        for phase, _ in step:
            clock.mark(phase)
        clock.end_step()
    assert clock.stop() == end
    times = clock.times()
    assert times["step_s"].sum() == end
    assert list(times["step_s"]) == [sum(seconds for _, seconds in step) for step in steps]
    measured = [times[f"{phase}_s"] for phase in PHASES if f"{phase}_s" in times]
    assert list(np.sum(measured, axis=0)) == list(times["step_s"])
    assert list(times["start_s"]) == [0, *np.cumsum(times["step_s"])[:-1]]


def test_a_clock_that_is_started_again_begins_anew_and_leaves_what_it_gave_alone() -> None:
    clock = CpuClock(ticking(0, 1, 1, 10, 14, 14))
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.stop()
    first = clock.times()
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.stop()
    assert list(first["step_s"]) == [1]
    assert list(clock.times()["step_s"]) == [4]
    assert clock.began == 10


# A GPU's


class Stream:
    """A stream in milliseconds of its own time: what was queued on it, and how far it is."""

    def __init__(self) -> None:
        self.queued = self.reached = 0.0
        self.events: list[Event] = []
        self.waits = 0

    def event(self) -> Event:
        self.events.append(Event(self))
        return self.events[-1]

    def run(self, milliseconds: float) -> None:
        """The device works for so long, if it has so much to do."""
        self.reached = min(self.queued, self.reached + milliseconds)

    def finish(self) -> None:
        self.reached = self.queued


class Event:
    """What torch says of `torch.cuda.Event`."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._at = stream, -1.0

    def record(self, stream: Stream) -> None:
        self._at = stream.queued

    def query(self) -> bool:
        return self._at <= self._stream.reached

    def synchronize(self) -> None:
        self._stream.waits += 1
        self._stream.reached = max(self._stream.reached, self._at)

    def elapsed_time(self, end_event: Event) -> float:
        if not (self.query() and end_event.query()):
            raise RuntimeError("device not ready")
        return float(end_event._at - self._at)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: made.finish())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    return made


def cuda_clock(stream: Stream) -> CudaClock:
    return CudaClock(torch.device("cuda", 0), stream.event)


def queue(clock: CudaClock, stream: Stream, step: Sequence[tuple[str, float]]) -> None:
    for phase, milliseconds in step:
        stream.queued += milliseconds
        clock.mark(phase)
    clock.end_step()


def test_on_a_gpu_too_phases_add_up_to_steps_as_the_device_saw_them(stream: Stream) -> None:
    clock = cuda_clock(stream)
    clock.start()
    queue(
        clock, stream, [("data", 1), ("forward", 2), ("data", 3), ("forward", 4), ("optimizer", 5)]
    )
    queue(clock, stream, [("forward", 6), ("sync", 7)])
    clock.stop()
    times = clock.times()
    assert list(times["step_s"]) == pytest.approx([0.015, 0.013])
    assert list(times["start_s"]) == pytest.approx([0, 0.015])
    phases = {name: list(times[f"{name}_s"]) for name in PHASES if f"{name}_s" in times}
    assert phases == {
        "data": pytest.approx([0.004, 0]),
        "forward": pytest.approx([0.006, 0.006]),
        "sync": pytest.approx([0, 0.007]),
        "optimizer": pytest.approx([0.005, 0]),
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=any_steps, speed=st.integers(0, 3000))
def test_however_far_the_device_is_behind_no_time_is_lost(
    stream: Stream, steps: Steps, speed: int
) -> None:
    clock = cuda_clock(stream)
    clock.start()
    for step in steps:
        queue(clock, stream, step)
        stream.run(speed)
    clock.stop()
    times = clock.times()
    lengths = [sum(milliseconds for _, milliseconds in step) / 1e3 for step in steps]
    assert list(times["step_s"]) == pytest.approx(lengths)
    measured = [times[f"{phase}_s"] for phase in PHASES if f"{phase}_s" in times]
    assert list(np.sum(measured, axis=0)) == pytest.approx(lengths)


# How far the host may be ahead

long_steps = st.lists(
    st.lists(st.tuples(st.sampled_from(PHASES), st.integers(50, 3000)), min_size=1, max_size=3),
    min_size=1,
    max_size=30,
)


def steps_ahead(stream: Stream, steps: Sequence[Sequence[tuple[str, float]]]) -> int:
    """Number of of these steps, all that were queued since the stream was idle, have not ended."""
    ends = list(
        itertools.accumulate(sum(milliseconds for _, milliseconds in step) for step in steps)
    )
    return sum(end - ends[-1] + stream.queued > stream.reached for end in ends)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=long_steps, speed=st.integers(0, 3000))
def test_a_host_is_never_more_than_4_steps_ahead_where_they_take_time(
    stream: Stream, steps: Steps, speed: int
) -> None:
    clock = cuda_clock(stream)
    clock.start()
    for count, step in enumerate(steps, start=1):
        queue(clock, stream, step)
        assert steps_ahead(stream, steps[:count]) <= 4
        stream.run(speed)
    clock.stop()
    lengths = [sum(milliseconds for _, milliseconds in step) / 1e3 for step in steps]
    assert list(clock.times()["step_s"]) == pytest.approx(lengths)


def test_a_host_that_waits_leaves_4_steps_to_a_slow_device_which_then_never_waits_for_it(
    stream: Stream,
) -> None:
    clock = cuda_clock(stream)
    clock.start()
    ahead = []
    for count in range(1, 11):
        queue(clock, stream, [("forward", 3000)])
        ahead.append(steps_ahead(stream, [[("forward", 3000)]] * count))
    assert ahead == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert stream.waits == 6
    clock.stop()
    # But for the first, whose queue was empty.
    assert clock.most_idle()["forward_s"][1:].sum() == 0


@pytest.mark.parametrize(("step_ms", "most"), [(1, 200), (10, 20), (40, 5), (50, 4), (1000, 4)])
def test_a_host_may_be_a_fifth_of_a_second_ahead_of_a_device_whose_steps_are_short(
    stream: Stream, step_ms: int, most: int
) -> None:
    clock = cuda_clock(stream)
    clock.start()
    ahead = []
    for count in range(1, 301):
        queue(clock, stream, [("forward", step_ms)])
        ahead.append(steps_ahead(stream, [[("forward", step_ms)]] * count))
    assert max(ahead) == most


def test_short_steps_are_not_waited_for_once_one_is_known_to_be_short(stream: Stream) -> None:
    clock = cuda_clock(stream)
    clock.start()
    for _ in range(200):
        queue(clock, stream, [("forward", 0.25), ("backward", 0.5)])
    # The two marks of the first step.
    assert stream.waits == 2


@pytest.mark.parametrize("marks", [1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1, CudaClock.RING + 7])
def test_a_host_that_is_a_whole_ring_ahead_waits_for_the_oldest_mark_and_loses_none(
    stream: Stream, marks: int, more: int
) -> None:
    clock = cuda_clock(stream)
    clock.start()
    steps = CudaClock.RING // marks + more
    lengths = [(number % 7 + 1) / 128 for number in range(steps)]
    for milliseconds in lengths:
        queue(clock, stream, [("forward", milliseconds)] * marks)
    # One event is the start's; the marks of the first step are waited for in any case.
    assert stream.waits == max(marks, steps * marks + 1 - CudaClock.RING)
    clock.stop()
    assert list(clock.times()["step_s"]) == pytest.approx(
        [milliseconds * marks / 1e3 for milliseconds in lengths]
    )
    assert len(stream.events) == CudaClock.RING


def test_steps_are_known_when_the_device_has_passed_them_and_not_before(stream: Stream) -> None:
    clock = cuda_clock(stream)
    clock.start()
    known = []
    for device_ran in (0, 0, 3, 20, 5):
        stream.run(device_ran)
        queue(clock, stream, [("forward", 4), ("backward", 6)])
        known.append(list(clock.so_far()))
    # The device is at 0, 0, 3, 20 and 25 ms, where two steps and a half have ended.
    assert known == [[], [], [], pytest.approx([0.01, 0.01]), pytest.approx([0.01, 0.01])]
    clock.stop()
    assert list(clock.so_far()) == pytest.approx([0.01] * 5)
    assert stream.waits == 0


@pytest.mark.parametrize(
    ("behind", "host_ms", "idle_ms"), [(0, 3, 3), (5, 3, 3), (5, 7, 5), (6, 3, 0)]
)
def test_a_device_can_only_be_idle_in_a_phase_that_it_began_before_all_of_it_was_queued(
    stream: Stream, behind: int, host_ms: int, idle_ms: int
) -> None:
    readings = itertools.count(0, host_ms / 1e3)
    clock = CudaClock(torch.device("cuda", 0), stream.event, now=lambda: next(readings))
    clock.start()
    for _ in range(8):
        stream.queued += 5
        stream.reached = max(stream.reached, stream.queued - behind)
        clock.mark("forward")
        clock.end_step()
    clock.stop()
    # At most the host's time for it, and at most its own.
    # The first step begins on an idle device.
    assert list(clock.most_idle()["forward_s"][1:]) == pytest.approx([idle_ms / 1e3] * 7)


def test_what_follows_the_last_step_belongs_to_none(stream: Stream) -> None:
    clock = cuda_clock(stream)
    clock.start()
    queue(clock, stream, [("forward", 2)])
    stream.queued += 50
    clock.mark("sync")
    clock.stop()
    times = clock.times()
    assert set(times) == {"start_s", "step_s", "forward_s"}
    assert list(times["step_s"]) == pytest.approx([0.002])


def test_a_gpus_clock_begins_anew_on_the_same_events(stream: Stream) -> None:
    clock = cuda_clock(stream)
    for milliseconds in (2 / 64, 3 / 64, 4 / 64):
        clock.start()
        for _ in range(CudaClock.RING - 1):
            queue(clock, stream, [("forward", milliseconds)])
        # An unfinished window leaves its marks behind.
        if milliseconds != 3 / 64:
            clock.stop()
            assert set(clock.times()["step_s"]) == {milliseconds / 1e3}
            assert len(clock.times()["step_s"]) == CudaClock.RING - 1
    assert len(stream.events) == CudaClock.RING
