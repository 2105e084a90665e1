"""Base of modes that exchange gradients after backward: one place for a written-out all-reduce."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dtsweep.compression.exchange import Mark, Mean, Wait, mean_for, unmarked
from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import Bucket, buckets_of
from dtsweep.sync.clipping import clip
from dtsweep.sync.loss_scale import Updates
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import optimizer_name, passes, refuse_sparse_adam, share_weights


class AfterBackwardMode(SyncMode):
    """Gradients in consecutive buckets, which a mode sums one by one.

    Without a bucket size there is one bucket per type. A parameter that a pass did not use counts
    with a gradient of zeros. For a compression a mode also combines payloads
    (`compression.exchange.Collectives`): here by sums; modes may add other ways.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self.ranks = job.point.workers
        self.rank = job.rank

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights, and make room for their gradients."""
        share_weights(model)
        self._model = model
        self._buckets = buckets_of(model, self._job.point.bucket_bytes)
        if self._job.point.compression:
            self.means = [
                self._make_mean(bucket, seed=index) for index, bucket in enumerate(self._buckets)
            ]
        self._optimizer = make_optimizer(model.parameters())
        self.updates = Updates(self._job.scaler, model.parameters())
        refuse_sparse_adam(self._optimizer, self._job.point.sync)
        self.optimizer_class = optimizer_name(self._optimizer)

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, exchange, update."""
        if without:
            raise NotImplementedError(
                "nothing hides the exchange: it is measured as what steps mark as sync"
            )
        self._take_gradients()
        loss = passes(self._job, self._model, batches, clock)
        self._collect_gradients()
        self._average_all(clock.mark)
        clock.mark("sync")
        self.updates.unscale()
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self.updates.make(self._optimizer.step)
        clock.mark("optimizer")
        return loss

    def exchange_alone(self) -> int:
        """Average the buckets, one after another."""
        self._average_all(unmarked)
        return 1

    def checkpoint_parts(self) -> tuple[nn.Module, torch.optim.Optimizer] | None:
        """Model and optimizer; None with a compression, which keeps errors."""
        return None if self.means else (self._model, self._optimizer)

    def expected_bytes(self) -> float | None:
        """An all-reduce of each bucket, as a ring or a tree does it."""
        return 2 * (self.ranks - 1) / self.ranks * sum(b.values.nbytes for b in self._buckets)

    def all_reduce(self, values: Tensor) -> Wait:
        """Sum, for a compression whose payloads are added up."""
        self.sum_over_ranks(values)
        return lambda: values

    def all_gather(self, payload: Tensor) -> Wait:
        """Bring every payload everywhere, where the mode can."""
        raise NotImplementedError

    def all_to_all(self, payloads: Tensor) -> Wait:
        """Bring row i of all payloads to rank i, where the mode can."""
        raise NotImplementedError

    def sum_over_ranks(self, values: Tensor) -> None:
        """Replace values, (elements,), by their sums over all ranks, bitwise equal on each rank."""
        raise NotImplementedError

    def average(self, values: Tensor, mean: Mean | None, mark: Mark) -> None:
        """Replace a bucket's values by their means over all ranks.

        Args:
            values: (elements,).
            mean: averages them compressed; None where the point has no compression.
            mark: called with `sync` and `compress` by what compresses.
        """
        if mean is None:
            self.sum_over_ranks(values)
            values.div_(self.ranks)
        else:
            mean.begin(values, mark)
            mean.finish(values, mark)

    def _make_mean(self, bucket: Bucket, *, seed: int) -> Mean:
        return mean_for(self._job.point, bucket.values, self, shapes=bucket.shapes, seed=seed)

    def _average_all(self, mark: Mark) -> None:
        means: Sequence[Mean | None] = self.means or [None] * len(self._buckets)
        for bucket, mean in zip(self._buckets, means, strict=True):
            self.average(bucket.values, mean, mark)

    def _take_gradients(self) -> None:
        """Have backward add up into the buckets."""
        for bucket in self._buckets:
            bucket.values.zero_()
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def _collect_gradients(self) -> None:
        """Bring gradients into the buckets that backward has put elsewhere, as sparse ones."""
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                if parameter.grad is not view:
                    view.zero_() if parameter.grad is None else view.copy_(
                        parameter.grad.to_dense()
                    )
                    parameter.grad = view
