"""Timed steps of a loop that goes on by itself: a generator gets control after each of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtsweep.measure.clock import Clock, Times, clock_for
from dtsweep.worker.loop import without_lead


@dataclass(frozen=True, kw_only=True)
class Part:
    """Steps that were timed in one go."""

    name: str
    """`warmup`, `window`, `exchange` or `no_exchange`."""

    blocks: tuple[int, ...]
    """Block numbers among which its steps are divided; only -1 without blocks."""

    began: float
    times: Times
    most_idle: Times
    """Upper limits of the device's idle time, by phase and step; empty on a CPU."""


class TimedParts:
    """Times the steps of one rank, part after part."""

    def __init__(self, device: torch.device) -> None:
        """Begin without any."""
        self._clock: Clock = clock_for(device)
        self._is_timing = False
        self.parts: list[Part] = []
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

        Args:
            name: of the part.
            steps: has an element for each step.
            blocks: of the part.
            lead: steps that go before and are not kept.

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
        part = Part(
            name=name,
            blocks=blocks,
            began=self._clock.began,
            times=without_lead(lead, self._clock.times()),
            most_idle=without_lead(lead, self._clock.most_idle()),
        )
        self.parts.append(part)
        return seconds

    def last(self, name: str) -> Part:
        """The last part of this name."""
        return next(part for part in reversed(self.parts) if part.name == name)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of `steps`, part after part; starts count from the window's.

        Losses of a loop of the user are not known.
        """
        window = self.last("window")
        names = dict.fromkeys(name for part in self.parts for name in part.times)
        counts = [len(part.times["step_s"]) for part in self.parts]
        parts = list(zip(self.parts, counts, strict=True))
        columns: dict[str, Any] = {
            name: np.concatenate([part.times.get(name, np.zeros(count)) for part, count in parts])
            for name in names
        }
        columns["start_s"] = np.concatenate(
            [part.times["start_s"] + part.began - window.began for part in self.parts]
        )
        columns["part"] = np.repeat([part.name for part in self.parts], counts)
        columns["block"] = np.concatenate(
            [np.repeat(part.blocks, count // len(part.blocks)) for part, count in parts]
        )
        columns["step"] = np.arange(sum(counts))
        return columns
