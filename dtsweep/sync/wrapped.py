"""Base of modes whose model is wrapped by `DistributedDataParallel`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dtsweep.measure.clock import StepClock
from dtsweep.measure.isolated_exchange import fits_in_memory
from dtsweep.sync.clipping import clip
from dtsweep.sync.comm_hook import CommHook
from dtsweep.sync.loss_scale import Updates
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import optimizer_name, passes, refuse_shared_memory, trained_parameters

_MIB = 2**20


_UNUSED = (
    "a pass did not use every parameter; give the workload "
    "ddp_options = {'find_unused_parameters': True}"
)
"""Message where DDP waits for a gradient that never comes."""


class WrappedMode(SyncMode):
    """Gradients averaged by DDP's reducer; under accumulation only the last pass exchanges."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._buckets: list[torch.Tensor] = []
        self._was_silent = False
        self._hook: CommHook | None = None
        if job.point.compression:
            self._hook = CommHook(job)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Wrap the model, which also gives all ranks rank 0's weights."""
        refuse_shared_memory(model)
        devices = None
        if self._job.device.type == "cuda":
            devices = [self._job.device]
        options = {**self._job.ddp_options, **self._bucket_options(model)}
        if self._hook:
            options["gradient_as_bucket_view"] = True
        self._model = DistributedDataParallel(model, device_ids=devices, **options)
        if hook := self._hook:
            # torch looks at annotations, and takes none that are text.
            self._model.register_comm_hook(None, lambda _, bucket: hook.begin(bucket))
        self._optimizer = self._make_optimizer(make_optimizer)
        self.updates = Updates(self._job.scaler, model.parameters())

    def _make_optimizer(self, make_optimizer: MakeOptimizer) -> torch.optim.Optimizer:
        """Make the optimizer of the wrapped model's parameters, and note its name."""
        optimizer = make_optimizer(self._model.parameters())
        self.optimizer_class = optimizer_name(optimizer)
        return optimizer

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, exchange inside the last backward, update."""
        exchange = "gradients" not in without
        if exchange and self._was_silent:
            self._give_gradients()
        self._was_silent = not exchange
        if self._hook:
            self._hook.start(clock.mark)
        try:
            loss = passes(self._job, self._model, batches, clock, exchange=exchange)
        except RuntimeError as error:
            is_plain = not (self._model.find_unused_parameters or self._model.static_graph)
            if is_plain and str(error).startswith("Expected to have finished reduction"):
                raise RuntimeError(_UNUSED) from error
            raise
        if self._hook and exchange:
            self._hook.finish()
            self.means = self._hook.means
        self.updates.unscale()
        self.before_update()
        clip(self._model.parameters(), self._job.point.clip_norm)
        self.updates.make(lambda: self._take_step(without))
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")
        return loss

    def _take_step(self, without: Collection[str]) -> None:  # noqa: ARG002  # for modes whose optimizer exchanges too
        self._optimizer.step()

    def exchange_alone(self) -> int:
        """All-reduce tensors of the sizes of its buckets, all at once."""
        if self._hook:
            self._hook.exchange_alone()
            return 1
        if not self._buckets and not fits_in_memory(self._make_buckets, self._job.device):
            raise MemoryError("a rank has no memory for a second set of DDP's buckets")
        for work in [
            torch.distributed.all_reduce(bucket, async_op=True) for bucket in self._buckets
        ]:
            work.wait()
        return 1

    def checkpoint_parts(self) -> tuple[nn.Module, torch.optim.Optimizer] | None:
        """Model and optimizer; None with a compression, which keeps errors."""
        return None if self._hook else (self._model, self._optimizer)

    def expected_bytes(self) -> float | None:
        """An all-reduce of all gradients; unknown if they travel in another type."""
        if "mixed_precision" in self._job.ddp_options:
            return None
        ranks = self._job.point.workers
        return 2 * (ranks - 1) / ranks * sum(p.nbytes for p in trained_parameters(self._model))

    def _bucket_options(self, model: nn.Module) -> dict[str, float]:
        """Options for buckets of the point's size; one bucket without overlap."""
        model_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
        if self._job.point.overlap:
            size = self._job.point.bucket_bytes
        else:
            # Less than the first bucket is refused where graphs are divided at buckets.
            size = max(model_bytes, _MIB)
        if size is None:
            return {}
        return {"bucket_cap_mb": max(size, 1) / _MIB}

    def _give_gradients(self) -> None:
        """Give each parameter a gradient where DDP needs those of all passes since an exchange.

        With `find_unused_parameters` it takes passes without exchange for parts of one step: a
        parameter that one of them used must have a gradient in the next exchange, though the
        optimizer has set it to None since.
        """
        if self._model.find_unused_parameters:
            for parameter in self._model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)

    def _make_buckets(self) -> None:
        """Make tensors as large as DDP's buckets."""
        logged = self._model._get_ddp_logging_data()
        # DDP orders its buckets again after the first exchange, unless some parameters are unused.
        sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
        like = next(self._model.parameters())
        self._buckets = [
            like.new_zeros(int(size) // like.element_size()) for size in sizes.split(",")
        ]
