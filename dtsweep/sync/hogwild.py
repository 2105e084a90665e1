"""`hogwild`: workers of one node update the same parameters in shared memory, without locks.

Recht et al. 2011, arXiv 1106.5730. Nothing is sent: the update is the exchange.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import trainable_parameters
from dtsweep.sync.clipping import clip
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import optimizer_name, passes, share_weights
from dtsweep.sync.shared_memory import (
    SharedMemory,
    allocate_shared,
    bytes_for,
    map_shared,
    shared_views,
    update_counts,
)


class Hogwild(SyncMode):
    """A gradient on the parameters as they are, and their update in place.

    Gradients are divided by the number of workers, as pushes to a parameter server are: the samples
    of a step move the parameters as far as in `ddp`. Each worker has an optimizer of its own.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._late: list[int] = []

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Move the parameters to memory that all workers have; rank 0's values are everybody's.

        Raises:
            ValueError: the model is on a GPU, or a worker is on another node.
        """
        if self._job.device.type != "cpu":
            raise ValueError(
                "hogwild shares parameters in main memory; train on CPUs, or use parameter_server"
            )
        share_weights(model)
        self._model = model
        self._trained = trainable_parameters(model)
        memory = self._mapped()
        self._updates = update_counts(memory, self._job.point.workers)
        self._views = shared_views(memory, self._trained, self._job.point.workers)
        for parameter, view in zip(self._trained, self._views, strict=True):
            parameter.data = view
        self._optimizer = make_optimizer(model.parameters())
        self.optimizer_class = optimizer_name(self._optimizer)

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, and update what all workers read."""
        if without:
            raise NotImplementedError("the update is the exchange: no step goes without it")
        workers = self._job.point.workers
        seen: list[int] = []

        def noting(model: nn.Module, batch: Any) -> Tensor:
            # Not when a batch is loaded: all of a step's may be, before the first pass.
            if not seen:
                seen.append(self._updates_of_others())
            return self._job.loss(model, batch)

        loss = passes(replace(self._job, loss=noting), self._model, batches, clock)
        self.before_update()
        clip(self._trained, self._job.point.clip_norm)
        for parameter in self._trained:
            if parameter.grad is not None and workers > 1:
                # In place, also of sparse gradients.
                parameter.grad.div_(workers)
        self._late.append(self._updates_of_others() - seen[0])
        self._optimizer.step()
        self._updates[self._job.rank] += 1
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")
        return loss

    def drain(self) -> None:
        """Check that the optimizer has updated the shared parameters: nothing is under way.

        Raises:
            ValueError: it has given a parameter other memory.
        """
        for parameter, view in zip(self._trained, self._views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                raise ValueError(
                    f"{self.optimizer_class} replaces the memory of parameters, which hogwild "
                    "shares; update them in place"
                )

    def counters(self) -> Mapping[str, Any]:
        """Return the staleness of each step, in updates of others."""
        late, self._late = self._late, []
        return {"staleness": late}

    def _mapped(self) -> SharedMemory:
        """Memory that rank 0 has allocated and filled, mapped on all ranks.

        Raises:
            ValueError: some rank can't map it; on all ranks.
        """
        workers, memory = self._job.point.workers, None
        place = [""]
        error: OSError | None = None
        if self._job.rank == 0:
            try:
                memory = allocate_shared(bytes_for(self._trained, workers))
                place = [memory.place]
                views = shared_views(memory, self._trained, workers)
                torch._foreach_copy_(views, [p.detach() for p in self._trained])
            except OSError as raised:
                error = raised
        distributed.broadcast_object_list(place, src=0)
        if memory is None and place[0]:
            memory = map_shared(place[0])
        is_mapped = torch.tensor(int(memory is not None))
        distributed.all_reduce(is_mapped, op=distributed.ReduceOp.MIN)
        if memory is not None:
            memory.forget_place()
        if memory is None or not is_mapped:
            raise ValueError(
                "hogwild needs all workers on one Linux host, where they can map the same memory; "
                "start them on one node (placement=strict_pack)"
            ) from error
        return memory

    def _updates_of_others(self) -> int:
        """Updates that the other workers have finished since the start."""
        return int(self._updates.sum() - self._updates[self._job.rank])
