"""Timed steps of a loop that goes on by itself: a generator gets control after each of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import torch
from numpy.typing import NDArray

from dtsweep.measure.clock import Clock, clock_for
from dtsweep.worker.loop import Segment, columns_of_segments, without_lead


class TimedParts:
    """Times the steps of one rank, part after part."""

    def __init__(self, device: torch.device) -> None:
        """Begin without any."""
        self._clock: Clock = clock_for(device)
        self._is_timing = False
        self.parts: list[Segment] = []
        self.so_far = self._clock.so_far
        """Lengths of the steps of the part under way that are known to have ended, in seconds."""

    def mark(self, phase: str) -> None:
        """Divide a step into waiting for batches and the rest."""
        if self._is_timing:
            self._clock.mark(phase)

    def end_step(self) -> None:
        """End a step of the loop."""
        if self._is_timing:
            self._clock.mark("loop")
            self._clock.end_step()

    def timed(
        self, name: str, steps: Iterable[int], *, blocks: tuple[int, ...] = (-1,), lead: int = 0
    ) -> Generator[None, None, float]:
        """Time steps of the loop, which goes on at each `yield`.

        Returns:
            Seconds from its start to its end.
        """
        self._clock.start()
        self._is_timing = True
        try:
            for _ in range(lead):
                yield
            for _ in steps:
                yield
        finally:
            self._is_timing = False
        seconds = self._clock.stop()
        part = Segment(
            name=name,
            blocks=blocks,
            began=self._clock.began,
            times=without_lead(lead, self._clock.times()),
            most_idle=without_lead(lead, self._clock.most_idle()),
        )
        self.parts.append(part)
        return seconds

    def last(self, name: str) -> Segment:
        """The last part of this name."""
        return next(part for part in reversed(self.parts) if part.name == name)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of `steps`, part after part; starts count from the window's.

        Losses of a loop of the user are not known.
        """
        return columns_of_segments(self.parts, unknown=0.0)
