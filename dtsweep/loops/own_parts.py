"""Timed steps of a loop that goes on by itself: a generator gets control after each of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import Clock, clock_for
from dtsweep.sync.mode import Loss
from dtsweep.sync.passes import kept_loss, sum_of_losses
from dtsweep.worker.loop import Segment, columns_of_segments, numbers_of, without_lead


class TimedParts:
    """Times the steps of one rank, part after part."""

    def __init__(self, device: torch.device) -> None:
        """Begin without any."""
        self._device = device
        self._clock: Clock = clock_for(device)
        self._is_timing = False
        self._losses: list[list[Loss]] = [[]]
        """Of the backward passes of each step of the part under way, the last one under way."""
        self.parts: list[Segment] = []
        self.has_sums = False
        """True if a timed step had several backward passes."""
        self.so_far = self._clock.so_far
        """Lengths of the steps of the part under way that are known to have ended, in seconds."""

    def mark(self, phase: str) -> None:
        """Divide a step into waiting for batches and the rest."""
        if self._is_timing:
            self._clock.mark(phase)

    def note_loss(self, loss: torch.Tensor) -> None:
        """Note the loss of a backward pass; on a GPU nobody waits for it."""
        if isinstance(loss, DTensor):
            loss = loss.to_local()
        if loss.device.type == self._device.type:
            self._losses[-1].append(kept_loss(loss, self._device))

    def end_step(self) -> None:
        """End a step of the loop."""
        self._losses.append([])
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
        # Those of earlier steps are of other parts, or of none.
        del self._losses[:-1]
        self._is_timing = True
        try:
            for _ in range(lead):
                yield
            for _ in steps:
                yield
        finally:
            self._is_timing = False
        seconds = self._clock.stop()
        of_steps = self._losses[lead:-1]
        part = Segment(
            name=name,
            blocks=blocks,
            began=self._clock.began,
            times=without_lead(lead, self._clock.times()),
            most_idle=without_lead(lead, self._clock.most_idle()),
            losses=[sum_of_losses(losses, self._device) if losses else None for losses in of_steps],
        )
        self.has_sums |= any(len(losses) > 1 for losses in of_steps)
        self.parts.append(part)
        return seconds

    def last(self, name: str) -> Segment:
        """The last part of this name."""
        return next(part for part in reversed(self.parts) if part.name == name)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of `steps`, part after part; starts count from the window's."""
        columns = columns_of_segments(self.parts, unknown=0.0)
        columns["loss"] = np.concatenate([numbers_of(part.losses) for part in self.parts])
        return columns
