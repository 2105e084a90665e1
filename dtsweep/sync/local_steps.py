"""Base of modes whose workers train alone, and combine their parameters once in a period."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torch import nn

from dtsweep.compression.exchange import Mark, unmarked
from dtsweep.measure.clock import StepClock
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import optimizer_name, passes, share_weights


class LocalStepsMode(SyncMode):
    """Steps of each worker's own; after each `sync_period` of them a mode's `combine`."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._steps = 0

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        share_weights(model)
        self._model = model
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = optimizer_name(self._optimizer)

    def begin_period(self, done: int) -> None:
        """Count on from there: with 0 the next period is a whole one."""
        self._steps = done

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, update; at the end of a period combine."""
        if without:
            raise NotImplementedError(
                "nothing hides the exchange: it is measured as what steps mark as sync"
            )
        loss = self.train(batches, clock)
        self._steps += 1
        if self._steps % self._job.point.period == 0:
            self.combine(clock.mark)
        return loss

    def train(self, batches: Iterator[Any], clock: StepClock) -> Loss:
        """Make one update by this worker's own gradient."""
        loss = passes(self._job, self._model, batches, clock)
        self.update(clock)
        return loss

    def update(self, clock: StepClock) -> None:
        """Update this worker's parameters with the gradients that they have."""
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")

    def combine(self, mark: Mark) -> None:
        """Exchange, and give all workers the same parameters.

        Args:
            mark: called with `sync`, and with `compress` and `optimizer` where there are such
                phases.
        """
        raise NotImplementedError

    def exchange_alone(self) -> int:
        """Combine again; returns the number of steps that share the exchange."""
        self.combine(unmarked)
        return self._job.point.period
