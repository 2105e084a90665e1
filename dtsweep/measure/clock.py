"""Clocks: when each step ended. On a CPU the monotonic clock, on a GPU events on its stream, read late."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

PHASES = ("data", "forward", "backward", "sync", "optimizer")
"""The parts of a step, in the order in which they usually come."""

Times = Mapping[str, NDArray[np.float64]]
"""By column (`start_s`, `step_s`, `data_s` …): (steps,) seconds; a phase that was not measured is absent."""


class Clock(Protocol):
    """Times the steps of one rank; a step ends where the next begins."""

    began: float
    """When it was started, in seconds of the monotonic clock."""

    def start(self) -> None:
        """Begin the first step: everything before has ended on the device."""

    def mark(self, phase: str) -> None:
        """Say that what ran since the last mark was this phase."""

    def end_step(self) -> None:
        """End a step, without waiting for the device."""

    def stop(self) -> float:
        """Wait for the device; return the seconds since the start."""

    def times(self) -> Times:
        """The steps' times; call it after `stop`."""


def clock_for(device: torch.device) -> Clock:
    """Make the clock that fits a device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock()


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

    def stop(self) -> float:
        """Return the seconds since the start."""
        return self._now() - self.began

    def times(self) -> Times:
        """The steps' times, and each phase that some step had."""
        ends = np.array([self.began, *self._ends])
        seen = {phase for step in self._phases for phase in step}
        phases = {
            f"{phase}_s": np.array([step.get(phase, 0.0) for step in self._phases[:-1]])
            for phase in PHASES
            if phase in seen
        }
        return {"start_s": ends[:-1] - self.began, "step_s": np.diff(ends), **phases}


class CudaClock:
    """One event per step on the compute stream, read when it has long passed.

    The host never waits inside the window, unless it runs a whole ring of steps ahead of the device.
    """

    RING = 256

    def __init__(self, device: torch.device) -> None:
        """Allocate the ring before the window, not in it."""
        self._device = device
        self._free = [torch.cuda.Event(enable_timing=True) for _ in range(self.RING)]
        self._pending: deque[torch.cuda.Event] = deque()
        self._steps: list[float] = []

    def start(self) -> None:
        """Begin the first step on an idle device."""
        self._free += self._pending
        self._pending.clear()
        self._steps = []
        torch.cuda.synchronize(self._device)
        self.began = time.perf_counter()
        self._record()

    def mark(self, phase: str) -> None:
        """Phases on a GPU are not measured: the host's time says nothing about the device's."""

    def end_step(self) -> None:
        """Record the step's end and read those that have passed."""
        self._record()
        while len(self._pending) > 2 and self._pending[1].query():
            self._read()

    def stop(self) -> float:
        """Wait for the device; return the seconds since the start."""
        torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self.began
        while len(self._pending) > 1:
            self._read()
        return seconds

    def times(self) -> Times:
        """The steps' times, as the device saw them."""
        steps = np.array(self._steps)
        return {"start_s": np.cumsum(steps) - steps, "step_s": steps}

    def _record(self) -> None:
        if not self._free:
            self._pending[1].synchronize()
            self._read()
        event = self._free.pop()
        event.record(torch.cuda.current_stream(self._device))
        self._pending.append(event)

    def _read(self) -> None:
        first = self._pending.popleft()
        self._steps.append(first.elapsed_time(self._pending[0]) / 1e3)
        self._free.append(first)
