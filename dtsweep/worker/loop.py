"""The timed loop of one rank: runs a mode's steps, part after part, and keeps their times."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from dtsweep.measure.clock import Times, clock_for
from dtsweep.sweep.modes import SyncMode
from dtsweep.sync.passes import Job, batches_of_steps


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Steps that were run in one go."""

    name: str
    """`warmup`, `window`, `exchange` or `no_exchange`."""

    block: int
    """Number of a block after the window, else -1."""

    began: float
    times: Times
    losses: list[torch.Tensor]


class Loop:
    """Runs a mode's steps and keeps their times, part by part."""

    def __init__(self, job: Job, mode: SyncMode) -> None:
        """Begin with the first samples."""
        self.job, self.mode = job, mode
        self.clock, self._batches = clock_for(job.device), batches_of_steps(job)
        self.segments: list[Segment] = []
        self.drained_s = 0.0

    def run(self, name: str, window: Iterable[int], *, block: int = -1, drain: bool = False) -> float:
        """The timed loop: as many steps as the window has; nothing else stands between start and end."""
        losses = []
        self.clock.start()
        for _ in window:
            losses.append(self.step(exchange=name != "no_exchange"))
            self.clock.end_step()
        began_drain = time.perf_counter()
        if drain:
            self.mode.drain()
        self.drained_s = time.perf_counter() - began_drain
        seconds = self.clock.stop()
        times = self.clock.times()
        self.segments.append(Segment(name=name, block=block, began=self.clock.began, times=times, losses=losses))
        return seconds

    def step(self, *, exchange: bool = True) -> torch.Tensor:
        """Do one step."""
        return self.mode.step(next(self._batches), self.clock, exchange=exchange)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of `steps`, part after part; starts count from the window's."""
        window = next(part for part in reversed(self.segments) if part.name == "window")
        names = {name for part in self.segments for name in part.times}
        columns = {name: _joined(part.times.get(name, _unknown(part)) for part in self.segments) for name in names}
        columns["start_s"] = _joined(part.times["start_s"] + part.began - window.began for part in self.segments)
        columns["loss"] = _joined(
            torch.stack(part.losses).double().cpu().numpy() if part.name in ("warmup", "window") else _unknown(part)
            for part in self.segments
            if len(part.losses)
        )
        counts = [len(part.losses) for part in self.segments]
        columns["part"] = np.repeat([part.name for part in self.segments], counts)
        columns["block"] = np.repeat([part.block for part in self.segments], counts)
        columns["step"] = np.arange(len(columns["part"]))
        return columns

    def demote(self) -> None:
        """Count the last window as warm-up."""
        self.segments[-1] = replace(self.segments[-1], name="warmup")


def _joined(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(arrays))


def _unknown(part: Segment) -> NDArray[np.float64]:
    return np.full(len(part.losses), np.nan)


def barrier(device: torch.device) -> None:
    """Wait for the device, then for all ranks."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        distributed.barrier(device_ids=[device.index])
    else:
        distributed.barrier()
