"""`local_sgd`: every worker trains alone; every `sync_period` steps the parameters are averaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from dtsweep.measure.clock import Clock
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class LocalSgd(SyncMode):
    """torch's model averaging; optimizer state stays each worker's own."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._steps = 0

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        share_weights(model)
        self._model = model
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = type(self._optimizer).__name__

    def begin_period(self, done: int) -> None:
        """Count on from there: with 0 the next period is a whole one."""
        self._steps = done

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> Loss:
        """Pass, update; at the end of a period average."""
        if not exchange:
            raise NotImplementedError("nothing hides the exchange: it is measured as what steps mark as sync")
        loss = passes(self._job, self._model, batches, clock)
        self._optimizer.step()
        self._optimizer.zero_grad()
        clock.mark("optimizer")
        self._steps += 1
        if self._steps % self._job.point.period == 0:
            self.exchange_alone()
            clock.mark("sync")
        return loss

    def exchange_alone(self) -> int:
        """Average the parameters; a whole period shares it."""
        average_parameters(self._model.parameters(), torch.distributed.distributed_c10d._get_default_group())
        return self._job.point.period
