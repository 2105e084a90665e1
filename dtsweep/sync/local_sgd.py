"""`local_sgd`: every worker trains alone; every `sync_period` steps the parameters are averaged."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed import distributed_c10d

from dtsweep.compression.exchange import Mark, mean_for, unmarked
from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import Bucket, buckets_of
from dtsweep.sync.clipping import clip
from dtsweep.sync.groups import GroupCollectives
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class LocalSgd(SyncMode):
    """Average of all parameters in one all-reduce; optimizer state stays each worker's own.

    What is compressed are the changes of a period: of parameters themselves most would be lost.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._steps = 0
        self._changes: list[Bucket] = []
        self._agreed: list[Bucket] = []

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        share_weights(model)
        self._model = model
        if self._job.point.compression:
            self._make_means(model)
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = type(self._optimizer).__name__

    def begin_period(self, done: int) -> None:
        """Count on from there: with 0 the next period is a whole one."""
        self._steps = done

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, update; at the end of a period average."""
        if without:
            raise NotImplementedError(
                "nothing hides the exchange: it is measured as what steps mark as sync"
            )
        loss = passes(self._job, self._model, batches, clock)
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")
        self._steps += 1
        if self._steps % self._job.point.period == 0:
            self._average(clock.mark)
            clock.mark("sync")
        return loss

    def exchange_alone(self) -> int:
        """Average the parameters, or again the changes of the last period.

        Returns the number of steps that share the exchange.
        """
        # Workers agree since: averaged as they are, they would send zeros, which a coding makes
        # next to nothing of.
        for bucket, agreed in zip(self._changes, self._agreed, strict=True):
            agreed.values.sub_(bucket.values)
        self._average(unmarked)
        return self._job.point.period

    def expected_bytes(self) -> float | None:
        """An all-reduce of all parameters, in one type, every period."""
        ranks = self._job.point.workers
        parameters = list(self._model.parameters())
        kind = functools.reduce(torch.promote_types, [p.dtype for p in parameters])
        whole_bytes = sum(p.numel() for p in parameters) * kind.itemsize
        return 2 * (ranks - 1) / ranks * whole_bytes / self._job.point.period

    @torch.no_grad()
    def _average(self, mark: Mark) -> None:
        """Average the parameters; with compression, average each worker's changes of the period."""
        if not self.means:
            _average_parameters(list(self._model.parameters()), self._job.point.workers)
        for bucket, mean, agreed in zip(self._changes, self.means, self._agreed, strict=True):
            torch._foreach_copy_(bucket.views, bucket.parameters)
            bucket.values.sub_(agreed.values)
            mean.begin(bucket.values, mark)
            mean.finish(bucket.values, mark)
            agreed.values.add_(bucket.values)
            torch._foreach_copy_(bucket.parameters, agreed.views)
            mark("compress")

    def _make_means(self, model: nn.Module) -> None:
        """Allocate buffers for a period's changes and for the parameters at its start."""
        self._changes = buckets_of(model, None)
        self._agreed = buckets_of(model, None)
        group = GroupCollectives(distributed_c10d._get_default_group())
        self.means = [
            mean_for(self._job.point, bucket.values, group, shapes=bucket.shapes, seed=index)
            for index, bucket in enumerate(self._changes)
        ]
        with torch.no_grad():
            for agreed in self._agreed:
                torch._foreach_copy_(agreed.views, agreed.parameters)


def _average_parameters(parameters: Sequence[nn.Parameter], workers: int) -> None:
    """Replace parameters by their means over all workers; sums are in their common type.

    Not torch's `average_parameters`, which waits for the GPU before it begins.
    """
    flat = torch.cat([parameter.reshape(-1) for parameter in parameters]).div_(workers)
    distributed.all_reduce(flat)
    parts = flat.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))
