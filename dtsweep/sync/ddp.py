"""`ddp`: synchronous data parallel, gradients averaged while backward still runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dtsweep.measure.clock import Clock
from dtsweep.sync.passes import Job, MakeOptimizer, passes


class Ddp:
    """torch's `DistributedDataParallel`; under accumulation only the last pass exchanges."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        self._job = job

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Wrap the model, which also gives all ranks rank 0's weights."""
        devices = [self._job.device] if self._job.device.type == "cuda" else None
        self._model = DistributedDataParallel(model, device_ids=devices, **self._job.ddp_options)
        self._optimizer = make_optimizer(self._model.parameters())

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> torch.Tensor:
        """Pass, exchange inside the last backward, update."""
        loss = passes(self._job, self._model, batches, clock, exchange=exchange)
        self._optimizer.step()
        self._optimizer.zero_grad()
        clock.mark("optimizer")
        return loss

    def drain(self) -> None:
        """Nothing is under way after a step."""

    def counters(self) -> Mapping[str, Any]:
        """What the exchange sends is the backend's affair; it is not counted here."""
        return {}

    def close(self) -> None:
        """Let go of the model."""
        self.__dict__.clear()
