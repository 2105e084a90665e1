"""Clocks: the end of each phase and step.

On a CPU the monotonic clock, on a GPU events on its stream, which are read after the window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dtsweep.results.statuses import PHASE_MEANINGS

Times = Mapping[str, NDArray[np.float64]]
"""By column (`start_s`, `step_s`, `data_s` …): (steps,) seconds; unmeasured phases are absent."""


class StepClock(Protocol):
    """The part of a clock that sync modes use."""

    def mark(self, phase: str) -> None:
        """Say that what ran since the last mark was this phase."""


class Clock(StepClock, Protocol):
    """Times the steps of one rank; a step ends where the next begins."""

    began: float
    """Start, in seconds of the monotonic clock."""

    def start(self) -> None:
        """Begin the first step: everything before has ended on the device."""

    def end_step(self) -> None:
        """End a step at its last mark; does not wait for a step that the device just began."""

    def so_far(self) -> NDArray[np.float64]:
        """Lengths of the steps known to have ended: (steps,) seconds; does not wait."""

    def stop(self) -> float:
        """Wait for the device; return the seconds since the start."""

    def times(self) -> Times:
        """The steps' times; call it after `stop`."""

    def most_idle(self) -> Times:
        """Upper limits of the time without work for the device, by phase as in `times`.

        Empty where host and device are one.
        """


def clock_for(device: torch.device) -> Clock:
    """Make the clock that fits a device."""
    if device.type == "cuda":
        return CudaClock(device)
    return CpuClock()


class CpuClock:
    """Work is done when the call returns: one clock reading a mark."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Take the time source as an argument, so that tests need no waiting."""
        self._now = now

    def start(self) -> None:
        """Begin the first step."""
        self._ends: list[float] = []
        self._phases: list[dict[str, float]] = [{}]
        self.began = self._last = self._now()

    def mark(self, phase: str) -> None:
        """Add the time since the last mark to this phase."""
        now = self._now()
        phases = self._phases[-1]
        phases[phase] = phases.get(phase, 0.0) + now - self._last
        self._last = now

    def end_step(self) -> None:
        """End a step at the last mark, so that its phases add up to it."""
        self._ends.append(self._last)
        self._phases.append({})

    def so_far(self) -> NDArray[np.float64]:
        """All steps that ended."""
        return np.diff(np.array([self.began, *self._ends]))

    def stop(self) -> float:
        """Return the seconds since the start."""
        return self._now() - self.began

    def times(self) -> Times:
        """The steps' times, and each phase that some step had."""
        ends = np.array([self.began, *self._ends])
        return {
            "start_s": ends[:-1] - self.began,
            "step_s": np.diff(ends),
            **_phase_columns(self._phases[:-1]),
        }

    def most_idle(self) -> Times:
        """Host and device are one."""
        return {}


class Event(Protocol):
    """The part of `torch.cuda.Event` that is used here."""

    def record(self, stream: Any) -> None:
        """Note when the stream gets here."""

    def query(self) -> bool:
        """True if the stream has been here."""

    def synchronize(self) -> None:
        """Wait for the stream to get here."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another."""


class _Mark(NamedTuple):
    """The end of a phase, as the host queued it."""

    phase: str
    event: Event
    host_s: float
    """Time that the host took since the mark before, where the device may have run out of work in
    it; else 0."""


class CudaClock:
    """An event on the compute stream at the end of each phase, read when it has long passed.

    What decides about the window sees the host's clock, so the host must not run far ahead of the
    device: it waits for the step four before, but where steps are short it may be a fifth of a
    second ahead. The device always has that much left to do. It also waits where a whole ring of
    events is under way.

    The device can only be without work in a phase if the mark before it has passed when the host
    has launched the phase. It is then idle for at most the host's time for the phase, and for at
    most the phase's time on the device (`most_idle`).
    """

    RING = 1024
    AHEAD, AHEAD_S = 4, 0.2

    def __init__(
        self,
        device: torch.device,
        make_event: Callable[[], Event] | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make the ring before the window, not in it.

        Args:
            device: a GPU.
            make_event: makes an event that times and whose wait keeps no core busy.
            now: the host's clock, in seconds.
        """
        self._device = device
        self._now = now
        make = make_event or (lambda: torch.cuda.Event(enable_timing=True, blocking=True))
        self._free = [make() for _ in range(self.RING)]
        # CUDA makes an event when it is first recorded.
        for event in self._free:
            event.record(torch.cuda.current_stream(device))
        self._pending: deque[_Mark] = deque()
        self._is_last: deque[bool] = deque()

    def start(self) -> None:
        """Begin the first step on an idle device."""
        self._free += [mark.event for mark in self._pending]
        self._pending.clear()
        self._is_last.clear()
        self._steps: list[float] = []
        self._phases: list[dict[str, float]] = [{}]
        self._idle: list[dict[str, float]] = [{}]
        self._ended = 0
        torch.cuda.synchronize(self._device)
        self.began = self._marked_at = self._now()
        self._record("", host_s=0.0)

    def mark(self, phase: str) -> None:
        """Record that what the stream was given since the last mark was this phase."""
        may_have_been_idle = self._pending[-1].event.query()
        now = self._now()
        host_s = 0.0
        if may_have_been_idle:
            host_s = now - self._marked_at
        self._marked_at = now
        self._record(phase, host_s=host_s)

    def end_step(self) -> None:
        """End a step at the last mark and read what has passed.

        Wait where the device is far behind.
        """
        self._is_last[-1] = True
        self._ended += 1
        while len(self._pending) > 2 and self._pending[1].event.query():
            self._read()
        while self._is_far_ahead():
            self._wait()

    def so_far(self) -> NDArray[np.float64]:
        """The steps whose events were read."""
        return np.array(self._steps)

    def stop(self) -> float:
        """Wait for the device; return the seconds since the start."""
        torch.cuda.synchronize(self._device)
        seconds = self._now() - self.began
        while len(self._pending) > 1:
            self._read()
        return seconds

    def times(self) -> Times:
        """The steps' times and phases, as the device saw them."""
        steps = np.array(self._steps)
        return {
            "start_s": np.cumsum(steps) - steps,
            "step_s": steps,
            **_phase_columns(self._phases[: len(steps)]),
        }

    def most_idle(self) -> Times:
        """Upper limits of the time in which the device had nothing to do: (steps,) seconds each."""
        return _phase_columns(self._idle[: len(self._steps)])

    def _record(self, phase: str, *, host_s: float) -> None:
        if not self._free:
            self._wait()
        event = self._free.pop()
        event.record(torch.cuda.current_stream(self._device))
        self._pending.append(_Mark(phase, event, host_s))
        self._is_last.append(False)

    def _is_far_ahead(self) -> bool:
        """True if too many queued steps have not ended.

        Each takes about as long as the last that has.
        """
        ahead = self._ended - len(self._steps)
        return ahead > self.AHEAD and (not self._steps or ahead * self._steps[-1] > self.AHEAD_S)

    def _wait(self) -> None:
        """Wait for the oldest mark."""
        self._pending[1].event.synchronize()
        self._read()

    def _read(self) -> None:
        first = self._pending.popleft().event
        self._is_last.popleft()
        phase, second, host_s = self._pending[0]
        device_s = first.elapsed_time(second) / 1e3
        phases, idle = self._phases[-1], self._idle[-1]
        phases[phase] = phases.get(phase, 0.0) + device_s
        idle[phase] = idle.get(phase, 0.0) + min(host_s, device_s)
        if self._is_last[0]:
            self._steps.append(sum(phases.values()))
            self._phases.append({})
            self._idle.append({})
        self._free.append(first)


def _phase_columns(steps: Sequence[Mapping[str, float]]) -> Times:
    """Each phase that some step had, as a column."""
    seen = {phase for step in steps for phase in step}
    return {
        f"{name}_s": np.array([step.get(name, 0.0) for step in steps])
        for name in PHASE_MEANINGS
        if name in seen
    }
