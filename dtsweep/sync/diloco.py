"""`diloco`: own steps, then an outer optimizer's update with the mean change of a period."""

from __future__ import annotations

import torch
from torch import nn

from dtsweep.compression.exchange import Mark, unmarked
from dtsweep.sync.changes import Changes
from dtsweep.sync.local_steps import LocalStepsMode
from dtsweep.sync.mode import MakeOptimizer


class DiLoCo(LocalStepsMode):
    """Inner steps by the point's optimizer, whose state each worker keeps; outer Nesterov SGD.

    The outer gradient is the mean over workers of start − own parameters. Every worker makes the
    outer update by itself. (Douillard et al. 2023, https://arxiv.org/abs/2311.08105)
    """

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Make both optimizers; the outer one has a copy of the parameters."""
        super().prepare(model, make_optimizer)
        point = self._job.point
        self._changes = Changes(model, point)
        self.means = self._changes.means
        self._outer_optimizer = torch.optim.SGD(
            [view for agreed in self._changes.agreed for view in agreed.views],
            lr=point.outer_learning_rate,
            momentum=point.outer_momentum,
            # Torch refuses it without momentum, where it changes nothing.
            nesterov=point.outer_momentum > 0,
        )
        for bucket, agreed in zip(self._changes.buckets, self._changes.agreed, strict=True):
            for start, outer_gradient in zip(agreed.views, bucket.views, strict=True):
                start.grad = outer_gradient

    def combine(self, mark: Mark) -> None:
        """Average the changes, then update the agreed parameters with them."""
        self._changes.take()
        self._changes.average(mark)
        for bucket in self._changes.buckets:
            bucket.values.neg_()
        self._outer_optimizer.step()
        self._changes.give()
        mark("optimizer")

    def exchange_alone(self) -> int:
        """Average the changes of the last period again, without an update."""
        self._changes.average(unmarked)
        return self._job.point.period

    def expected_bytes(self) -> float | None:
        """An all-reduce of all changes every period."""
        ranks = self._job.point.workers
        whole_bytes = sum(bucket.values.nbytes for bucket in self._changes.buckets)
        return 2 * (ranks - 1) / ranks * whole_bytes / self._job.point.period
