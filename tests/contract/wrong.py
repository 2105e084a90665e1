"""A mode and a compression that keep the contract, and others that each break one promise."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.compression.compression import Compression
from dtsweep.measure.clock import StepClock
from dtsweep.sweep.compressions import CompressionInfo
from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights
from tests import declared


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


class Undrained(Delayed):
    def drain(self) -> None:
        self._exchanged()


class Unmarked(Delayed):
    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        return super().step(batches, Renaming(clock), without)


class Renaming:
    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def mark(self, phase: str) -> None:
        self._clock.mark("optimizer" if phase == "sync" else phase)


class Forgetful(Delayed):
    def _update(self, mean: Tensor | None) -> None:
        super()._update(self._gradients() if mean is not None else None)


class Unseen(Delayed):
    def _update(self, mean: Tensor | None) -> None:
        before_update, self.before_update = self.before_update, lambda: None
        super()._update(mean)
        self.before_update = before_update


class Wordless(Delayed):
    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        if without:
            raise NotImplementedError("no")
        return super().step(batches, clock)


class Failing(Delayed):
    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        raise RuntimeError("no step today")


class Fp8(Compression):
    """Three digits of precision in bits, from 1.5e-5 to 57344."""

    def compress(self, values: Tensor) -> Tensor:
        return values.to(torch.float8_e5m2).view(torch.uint8)

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        values.add_(payload.view(torch.float8_e5m2).to(values.dtype), alpha=scale)


class Drawing(Fp8):
    def compress(self, values: Tensor) -> Tensor:
        return super().compress(values * (1 + 1e-3 * torch.rand_like(values)))


class Longer(Fp8):
    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        super().add_to(values, payload)


DELAYED = ModeInfo(
    implementation="tests.contract.wrong:Delayed",
    semantics=lambda point: "stale",
    reads={},
    agree="gradients",
    can_exchange_alone=True,
)

FP8 = CompressionInfo(implementation="tests.contract.wrong:Fp8", exchange="all_gather")

MODES = (Delayed, Undrained, Unmarked, Forgetful, Unseen, Wordless, Failing)


def declare(patch: pytest.MonkeyPatch) -> None:
    """Declare the modes and compressions of this file in this process, by their names in lower."""
    modes = {
        kind.__name__.lower(): replace(DELAYED, implementation=f"{__name__}:{kind.__name__}")
        for kind in MODES
    }
    compressions = {
        kind.__name__.lower(): replace(FP8, implementation=f"{__name__}:{kind.__name__}")
        for kind in (Fp8, Drawing, Longer)
    }
    declared.declare(patch, modes, compressions)
