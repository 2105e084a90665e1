"""`delayed`: gradients are summed while the next step computes, which then applies them."""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn

from dtsweep.measure.clock import StepClock
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class Delayed(SyncMode):
    """Each step starts an all-reduce of its gradients and applies those of the step before."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._under_way: tuple[Tensor, Any] | None = None

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        share_weights(model)
        self._model = model
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = type(self._optimizer).__name__

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        if without:
            raise NotImplementedError("the exchange is measured as what steps mark as sync")
        self._model.zero_grad()
        loss = passes(self._job, self._model, batches, clock)
        own = self._gradients()
        mean = self._exchanged()
        clock.mark("sync")
        self._under_way = own, distributed.all_reduce(own, async_op=True)
        if self._job.point.workers == 1:
            # There is no exchange to wait for, so nothing is late.
            mean = self._exchanged()
        self._update(mean)
        clock.mark("optimizer")
        return loss

    def drain(self) -> None:
        self._update(self._exchanged())

    def exchange_alone(self) -> int:
        distributed.all_reduce(torch.zeros_like(self._gradients()))
        return 1

    def expected_bytes(self) -> float:
        workers = self._job.point.workers
        return 2 * (workers - 1) / workers * self._gradients().nbytes

    def _gradients(self) -> Tensor:
        """This worker's part of the mean gradient, of all parameters in one tensor."""
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._trained]
        return torch.cat([part.reshape(-1) for part in parts]) / self._job.point.workers

    def _exchanged(self) -> Tensor | None:
        """Wait for the exchange that is under way; None without one."""
        if self._under_way is None:
            return None
        mean, work = self._under_way
        self._under_way = None
        work.wait()
        return mean

    def _update(self, mean: Tensor | None) -> None:
        if mean is None:
            return
        sizes = [p.numel() for p in self._trained]
        for parameter, part in zip(self._trained, mean.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter).to(parameter.dtype)
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self._optimizer.step()
