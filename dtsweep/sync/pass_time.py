"""Wait of a slow rank, by the time of its own passes without its waits for other ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol

import torch

from dtsweep.measure.clock import Event
from dtsweep.sweep.point import Point


class PassTime(Protocol):
    """Slowdown of the passes of a slow rank, by its factor."""

    def forward(self) -> AbstractContextManager[None]:
        """Run forward in this context; a slow rank waits at its end."""

    def backward(self, loss: torch.Tensor) -> AbstractContextManager[None]:
        """Run backward of a loss in this context; a slow rank waits before it.

        DDP sends gradients while backward runs, so a wait behind it would delay none of them.
        """


class Untimed:
    """Passes of a rank that is not slow."""

    def forward(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> AbstractContextManager[None]:  # noqa: ARG002  # as in others
        """Do nothing."""
        return nullcontext()


def pass_time_of(point: Point, rank: int, device: torch.device) -> PassTime:
    """Make the slowdown of a rank: of the last one by `slow_rank`, of no other."""
    factor = 1.0
    if rank == point.workers - 1:
        factor = point.slow_rank or 1.0
    if factor == 1:
        return Untimed()
    if device.type == "cuda":
        return CudaPassTime(device, factor=factor)
    return CpuPassTime(factor=factor)


class CpuPassTime:
    """Times of the thread on its core, which stand still while it waits for other ranks.

    Both parts of a pass last longer by the factor: forward by its own time, backward by the time of
    the backward before it, because its wait comes first.
    """

    def __init__(self, *, factor: float, now: Callable[[], float] = time.thread_time) -> None:
        """Take the time source as an argument, so that tests need no waiting."""
        self._factor = factor
        self._now = now
        self._backward_s = 0.0

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Time forward; burn the core for what a slow rank's forward takes longer."""
        began = self._now()
        yield
        self._burn((self._factor - 1) * (self._now() - began))

    @contextmanager
    def backward(self, loss: torch.Tensor) -> Iterator[None]:  # noqa: ARG002  # for a GPU
        """Burn the core for what a slow rank's last backward would have taken longer; time it."""
        self._burn((self._factor - 1) * self._backward_s)
        began = self._now()
        yield
        self._backward_s = self._now() - began

    def _burn(self, seconds: float) -> None:
        """Keep the core busy for so long, as work would."""
        ends = self._now() + seconds
        while self._now() < ends:
            pass


class _Events(NamedTuple):
    """Events of a pass on the device's stream."""

    begins: Event
    forward_ends: Event
    wait_begins: Event
    backward_begins: Event
    backward_ends: Event
    cycles: int
    """Of the wait."""


class CudaPassTime:
    """Times between events on the stream, which are read when they have passed.

    The kernel that a slow rank waits by is launched before backward. It spins for as long as the
    last pass that has ended would have taken longer, because the host waits for none. In modes that
    gather shards in a pass, that counts to the pass.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        factor: float,
        make_event: Callable[[], Event] = lambda: torch.cuda.Event(enable_timing=True),
        spin: Callable[[int], None] = lambda cycles: torch.cuda._sleep(cycles),  # noqa: PLW0108  # torch without CUDA has none
        cycles_per_s: float | None = None,
    ) -> None:
        """Begin without a pass.

        Args:
            device: a GPU.
            factor: by which passes take longer, at least 1.
            make_event: makes an event that times.
            spin: launches a kernel that takes so many cycles.
            cycles_per_s: clock rate of the device; None asks it. Each wait corrects it.
        """
        self._device = device
        self._factor = factor
        self._make_event = make_event
        self._spin = spin
        if cycles_per_s is None:
            cycles_per_s = 1e3 * torch.cuda.get_device_properties(device).clock_rate
        self._cycles_per_s = cycles_per_s
        self._own_s = 0.0
        self._pending: deque[_Events] = deque()

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Read the passes that have ended, and time forward."""
        self._read()
        self._begins = self._recorded()
        yield
        self._forward_ends = self._recorded()

    @contextmanager
    def backward(self, loss: torch.Tensor) -> Iterator[None]:
        """Launch the wait of a slow rank, and time backward up to its own end."""
        wait_begins = self._recorded()
        cycles = round((self._factor - 1) * self._own_s * self._cycles_per_s)
        if cycles:
            self._spin(cycles)
        backward_begins = self._recorded()

        def end() -> None:
            self._pending.append(
                _Events(
                    self._begins,
                    self._forward_ends,
                    wait_begins,
                    backward_begins,
                    self._recorded(),
                    cycles,
                )
            )

        # Callbacks run in their order at the end of backward: this one before DDP's, in which the
        # stream waits for the other ranks.
        engine = torch.autograd.Variable._execution_engine
        loss.register_hook(lambda _: engine.queue_callback(end))
        yield

    def _recorded(self) -> Event:
        event = self._make_event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _read(self) -> None:
        while self._pending and self._pending[0].backward_ends.query():
            events = self._pending.popleft()
            forward_s = _seconds(events.begins, events.forward_ends)
            waited_s = _seconds(events.wait_begins, events.backward_begins)
            self._own_s = forward_s + _seconds(events.backward_begins, events.backward_ends)
            if events.cycles and waited_s:
                self._cycles_per_s = events.cycles / waited_s


def _seconds(begin: Event, end: Event) -> float:
    return begin.elapsed_time(end) / 1e3
