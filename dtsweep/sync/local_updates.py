"""Base of modes whose workers train alone, and exchange parameters at the end of each period."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dtsweep.measure.clock import StepClock
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class LocalUpdatesMode(SyncMode):
    """Update of each step by a worker's own gradient; a mode says how parameters are exchanged.

    Parameters without a gradient are equal from the start on and stay so: they are not sent.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self.ranks = job.point.workers
        self.rank = job.rank
        self._steps = 0

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        share_weights(model)
        self._model = model
        self._make_optimizer = make_optimizer
        of_type = defaultdict[torch.dtype, list[nn.Parameter]](list)
        for parameter in model.parameters():
            if parameter.requires_grad:
                of_type[parameter.dtype].append(parameter)
        self._by_type = list(of_type.values())
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = type(self._optimizer).__name__

    def begin_period(self, done: int) -> None:
        """Count on from there: with 0 the next period is a whole one."""
        self._steps = done

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, update; at the end of a period exchange."""
        if without:
            raise NotImplementedError(
                "nothing hides the exchange: it is measured as what steps mark as sync"
            )
        loss = self.train(batches, clock)
        self._steps += 1
        if self._steps % self._job.point.period == 0:
            self.exchange()
            clock.mark("sync")
        return loss

    def train(self, batches: Iterator[Any], clock: StepClock) -> Loss:
        """Make one update by this worker's own gradient."""
        loss = passes(self._job, self._model, batches, clock)
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")
        return loss

    def exchange(self) -> None:
        """Exchange the parameters at the end of a period."""
        raise NotImplementedError

    def exchange_alone(self) -> int:
        """Exchange the parameters; returns the number of steps that share the exchange."""
        self.exchange()
        return self._job.point.period

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters that are exchanged."""
        return sum(p.nbytes for parameters in self._by_type for p in parameters)


def values_of(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Copy the values of parameters of one type into one tensor: (elements,)."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


@torch.no_grad()
def set_values(parameters: Sequence[nn.Parameter], values: Tensor) -> None:
    """Write values, (elements,), into the parameters."""
    parts = values.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))
