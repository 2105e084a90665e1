"""Share of a step in which a GPU has no work, because its host launches too slowly.

In the window it is known from above (`CudaClock.most_idle`). After the window some steps are timed
with each phase queued behind a pause of the device, which then has no gaps. The difference of both
is what the device was idle. A phase in which the host waits for the device can't be queued so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from dtsweep.measure.clock import Event, Times
from dtsweep.measure.statistics import Series, students_t

OWN_PHASES = ("forward", "backward", "optimizer")
"""Phases of a worker's own computation: loading and exchange are measured otherwise."""

LEAST = 0.05
"""Upper limit, as a share of a step, from which on steps are queued to know more."""

LONGER, MORE_S = 1.5, 0.001
"""Length of a pause: this multiple of the host's last time for the phase, and a millisecond."""


class Idle(NamedTuple):
    """Idle time of a device as a share of a step: 95 % limits, and phases of unknown idle time."""

    low: float
    high: float
    unknown: Sequence[str]


class QueuedClock:
    """A clock whose every phase is queued as a whole, before the device begins it.

    It stands in the place of the loop's clock for some steps. Before each phase the device pauses
    for a little longer than the host took to launch this phase in the step before, and the host
    waits for the end of the phase before. The first step has no pauses: it shows how long the host
    takes.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        pause: Callable[[float], None] | None = None,
        make_event: Callable[[], Event] | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin the first step on an idle device.

        Args:
            device: a GPU.
            pause: keeps the stream busy for so many seconds.
            make_event: makes an event that times.
            now: the host's clock, in seconds.
        """
        self._device = device
        self._pause = pause or _pauses_of(device)
        self._make_event = make_event or (lambda: torch.cuda.Event(enable_timing=True))
        self._now = now
        self._launches: list[tuple[str, float]] = []
        self._waits_in: set[str] = set()
        self._late: list[tuple[int, str]] = []
        self._steps: list[list[tuple[str, Event, Event]]] = [[]]
        torch.cuda.synchronize(device)
        self._begin_phase(pause_s=0.0)

    def mark(self, phase: str) -> None:
        """End a phase on the stream, and begin the next behind a pause."""
        end = self._event()
        launch_s = self._now() - self._began_at
        if self._is_paused and self._begin.query():
            # The device came to the phase before all of it was queued. Once may be a hiccup of the
            # host.
            if any(phase == late for _, late in self._late):
                self._waits_in.add(phase)
            self._late.append((len(self._steps) - 1, phase))
        number = len(self._steps[-1])
        self._launches[number : number + 1] = [(phase, launch_s)]
        self._steps[-1].append((phase, self._begin, end))
        pause_s = 0.0
        if len(self._steps) > 1:
            # What follows the last phase of a step is the first one of the next.
            next_phase, next_s = self._launches[(number + 1) % len(self._launches)]
            if next_phase not in self._waits_in:
                pause_s = LONGER * next_s + MORE_S
        # A host that went on would wait behind several pauses, and that would count as launching.
        end.synchronize()
        self._begin_phase(pause_s)

    def end_step(self) -> None:
        """End a step at its last mark."""
        self._steps.append([])

    def queued(self) -> tuple[list[dict[str, float]], frozenset[str]]:
        """Return the phases of each step from the third on, in seconds.

        Also returns the phases that could not be queued. Steps in which another phase was not
        queued are left out. The first step has no pauses, and the first phase of the second has
        none either.
        """
        torch.cuda.synchronize(self._device)
        hiccups = {number for number, phase in self._late if phase not in self._waits_in}
        steps = []
        for number, marks in enumerate(self._steps[:-1]):
            if number < 2 or number in hiccups:
                continue
            phases: dict[str, float] = {}
            for phase, begin, end in marks:
                phases[phase] = phases.get(phase, 0.0) + begin.elapsed_time(end) / 1e3
            steps.append(phases)
        return steps, frozenset(self._waits_in)

    def _begin_phase(self, pause_s: float) -> None:
        self._is_paused = pause_s > 0
        if self._is_paused:
            self._pause(pause_s)
        self._begin = self._event()
        self._began_at = self._now()

    def _event(self) -> Event:
        event = self._make_event()
        event.record(torch.cuda.current_stream(self._device))
        return event


def _pauses_of(device: torch.device) -> Callable[[float], None]:
    """A function that keeps a GPU's stream busy for some seconds without using its memory."""
    cycles = 10_000_000
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    for end in ends:
        torch.cuda._sleep(cycles)
        end.record(torch.cuda.current_stream(device))
    ends[-1].synchronize()
    # The first one may still wait for the clock to rise.
    cycles_per_s = cycles / (ends[1].elapsed_time(ends[2]) / 1e3)
    return lambda seconds: torch.cuda._sleep(round(seconds * cycles_per_s))


def most_idle_share(window: Times, most_idle: Times) -> float:
    """Upper limit of the idle time of the own phases, as a share of the window's steps.

    Args:
        window: times of its steps.
        most_idle: of the same steps, as the clock gives it.
    """
    idle_s = sum(float(most_idle[f"{phase}_s"].sum()) for phase in _measured(window))
    return idle_s / float(window["step_s"].sum())


def idle_share(
    window: Times,
    most_idle: Times,
    queued: Sequence[Mapping[str, float]],
    waits_in: frozenset[str],
    *,
    has_peers: bool = False,
) -> Idle:
    """Idle time of the own phases, as a share of a step.

    Args:
        window: times of its steps.
        most_idle: of the same steps, as the clock gives it.
        queued: phases of the queued steps, in seconds.
        waits_in: phases that could not be queued; between nothing and the upper limit of their idle
            time is unknown.
        has_peers: whether phases may contain an exchange. A rank then also waits for the launches
            of others, and in queued steps for their pauses, so they give no upper limit.
    """
    step_s = float(window["step_s"].mean())
    most_s = {phase: float(most_idle[f"{phase}_s"].mean()) for phase in _measured(window)}
    unknown = [phase for phase in most_s if phase in waits_in and most_s[phase] > 0]
    known = [phase for phase in most_s if phase not in waits_in]
    unknown_s = sum(most_s[phase] for phase in unknown)
    limit_s = sum(most_s[phase] for phase in known)
    if not queued or not known:
        return Idle(0.0, (unknown_s + limit_s) / step_s, unknown)
    in_window = np.sum([window[f"{phase}_s"] for phase in known], axis=0)
    behind_pause = np.array([sum(step.get(phase, 0.0) for phase in known) for step in queued])
    idle_s = float(in_window.mean() - behind_pause.mean())
    half_s = _half_width(in_window, behind_pause)
    high_s = limit_s
    if not has_peers:
        high_s = min(max(0.0, idle_s + half_s), limit_s)
    low_s = min(max(0.0, idle_s - half_s), high_s)
    return Idle(low_s / step_s, (high_s + unknown_s) / step_s, unknown)


def _measured(window: Times) -> list[str]:
    return [phase for phase in OWN_PHASES if f"{phase}_s" in window]


def _half_width(*series: Series) -> float:
    """Half of the 95 % interval of a difference of means, by the fewer steps of the two."""
    count = min(map(len, series))
    if count < 2:
        return math.inf
    errors = [one.std(ddof=1) / math.sqrt(len(one)) for one in series]
    error = math.hypot(*errors)
    return float(students_t(count - 1)) * error
