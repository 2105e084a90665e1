"""A stand-in of a GPU with one stream and of its host, both in seconds of one clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch


class StandInEvent:
    """What torch says of `torch.cuda.Event`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._at = -1.0

    def record(self, _: object) -> None:
        self._at = self._machine.ends()

    def query(self) -> bool:
        return self._at <= self._machine.host

    def synchronize(self) -> None:
        self._machine.waits += 1
        self._machine.host = max(self._machine.host, self._at)

    def elapsed_time(self, end_event: StandInEvent) -> float:
        if not (self.query() and end_event.query()):
            raise RuntimeError("device not ready")
        return (end_event._at - self._at) * 1e3


@dataclass
class Machine:
    """A host that launches kernels, and a device that runs them in their order."""

    host: float = 0.0
    """Time of the host."""

    queue_length: int = 10_000
    """Kernels that may wait; the host waits where there are more."""

    busy: float = 0.0
    """Time for which the device has worked."""

    events: int = 0
    """Made so far."""

    waits: int = 0
    """Waits of the host for an event."""

    _ends: list[float] = field(default_factory=lambda: [0.0])

    def now(self) -> float:
        return self.host

    def ends(self) -> float:
        """Time at which the device has done all that it has been given, and the next can begin."""
        return max(self._ends[-1], self.host)

    def launch(self, device_s: float, host_s: float = 0.0) -> None:
        """Launch a kernel, which takes the host and then the device so long."""
        self.host += host_s
        if len(self._ends) > self.queue_length:
            self.host = max(self.host, self._ends[-self.queue_length])
        self._ends.append(self.ends() + device_s)
        self.busy += device_s

    def synchronize(self) -> None:
        self.host = self.ends()

    def event(self) -> StandInEvent:
        self.events += 1
        return StandInEvent(self)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine in the place of torch's device 0."""
    made = Machine()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: made.synchronize())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    return made


Step = Callable[[Machine, Callable[[str], None]], None]
"""A step on a machine, which marks its phases."""


def kernels(
    *,
    device_s: float,
    host_s: float,
    each: int = 20,
    waits_before: str = "",
    pageable_s: float = 0.0,
) -> Step:
    """A step of three phases with as many kernels each.

    Args:
        device_s: of a kernel, on the device.
        host_s: of a kernel, to launch it.
        each: kernels of a phase.
        waits_before: the phase in the middle of which the host waits for the device.
        pageable_s: of a copy from pageable memory in `data`, which waits for the device; 0 is none.
    """

    def step(machine: Machine, mark: Callable[[str], None]) -> None:
        if pageable_s:
            machine.synchronize()
            machine.launch(pageable_s)
            machine.synchronize()
        mark("data")
        for phase in ("forward", "backward", "optimizer"):
            for number in range(each):
                if phase == waits_before and number == each // 2:
                    machine.synchronize()
                machine.launch(device_s, host_s)
            mark(phase)

    return step
