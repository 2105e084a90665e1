"""What modes share that exchange gradients when backward is done: one place where an all-reduce is written out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from dtsweep.measure.clock import Clock
from dtsweep.sync.mode import Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class AfterBackwardMode(SyncMode):
    """Gradients lie one behind another in buckets, one per type where the point gives no size; a mode sums a bucket.

    A parameter that a pass did not use counts with a gradient of zeros.
    """

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights, and make room for their gradients."""
        share_weights(model)
        self._model = model
        self._buckets = _buckets_of(model, self._job.point.bucket_bytes)
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = type(self._optimizer).__name__

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> Loss:
        """Pass, exchange, update."""
        if not exchange:
            raise NotImplementedError("nothing hides the exchange: it is measured as what steps mark as sync")
        self._take_gradients()
        loss = passes(self._job, self._model, batches, clock)
        self._collect_gradients()
        self.exchange_alone()
        clock.mark("sync")
        self._optimizer.step()
        clock.mark("optimizer")
        return loss

    def exchange_alone(self) -> int:
        """Average the buckets, one after another."""
        for bucket in self._buckets:
            self.sum_over_ranks(bucket.values)
            bucket.values.div_(self._job.point.workers)
        return 1

    def sum_over_ranks(self, values: torch.Tensor) -> None:
        """Replace values, (elements,), by their sums over all ranks, the same to the last bit on each."""
        raise NotImplementedError

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
                    view.zero_() if parameter.grad is None else view.copy_(parameter.grad.to_dense())
                    parameter.grad = view


class _Bucket:
    """The gradients of some parameters in one tensor."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.values = parameters[0].new_zeros(sum(p.numel() for p in parameters))
        parts = self.values.split([p.numel() for p in parameters])
        self.views = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _buckets_of(model: nn.Module, size: int | None) -> list[_Bucket]:
    """Deal out the parameters in the order in which backward comes to them, each type by itself.

    Args:
        model: whose parameters.
        size: bytes from which on a bucket is full; None has room for all.
    """
    of_type = defaultdict[torch.dtype, list[list[nn.Parameter]]](lambda: [[]])
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        lists = of_type[parameter.dtype]
        lists[-1].append(parameter)
        if size is not None and sum(p.numel() * p.element_size() for p in lists[-1]) >= size:
            lists.append([])
    return [_Bucket(parameters) for lists in of_type.values() for parameters in lists if parameters]
