"""Training by a mode on one rank, as the common loop does it."""

from __future__ import annotations

import functools
from collections.abc import Collection

from torch import nn

from dtsweep.measure.clock import CpuClock
from dtsweep.sync.mode import Job, Loss, load_mode
from dtsweep.sync.passes import batches_of_steps, make_optimizer


class Loop:
    """A rank that trains a model by the mode of its point."""

    def __init__(self, job: Job, model: nn.Module) -> None:
        """Prepare the mode, and start the clock."""
        self.job, self.model, self.clock = job, model, CpuClock()
        self.mode = mode = load_mode(job.point.mode)(job)
        mode.prepare(model, functools.partial(make_optimizer, point=job.point))
        # Of the mode alone: a loop that refers to itself would keep its memory for a while.
        self._batches = batches_of_steps(job, lambda: mode.slot)
        self.clock.start()

    def run(self, steps: int, *, without: Collection[str] = ()) -> list[Loss]:
        """Take some steps; their losses."""
        losses = []
        for _ in range(steps):
            losses.append(self.mode.step(next(self._batches), self.clock, without=without))
            self.clock.end_step()
        return losses
