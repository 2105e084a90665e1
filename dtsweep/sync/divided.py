"""`ddp`, `fsdp` and `fsdp_grad` of workers that share a model: tensor and pipeline parallel.

Groups of consecutive workers have a model together; the groups train on samples of their own. All
are one mesh: data, pipeline, tensor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from dtsweep.measure.clock import StepClock
from dtsweep.sync.buckets import own_part
from dtsweep.sync.clipping import scale_to
from dtsweep.sync.meshes import mesh_of
from dtsweep.sync.mode import Job, Loss
from dtsweep.sync.pipeline import Pipeline, Stage, stages_of
from dtsweep.sync.sharded import ShardedMode
from dtsweep.sync.shared_layers import (
    by_mesh,
    share_layers,
    squared_norm,
    sum_partial_gradients,
)


class Divided(ShardedMode):
    """Mode on one mesh: torch's `parallelize_module`, its pipeline schedules and `fully_shard`.

    With `ddp` each group has a copy of the model: a shard of `fully_shard` is all of it.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        point = job.point
        self.frees = point.sync == "fsdp"
        copies, shards = 1, point.data_parallel
        if point.sync == "ddp":
            copies, shards = shards, copies
        shape = (copies, shards, point.pipeline_parallel, point.tensor_parallel)
        self._grid = mesh_of(job.device, shape, ("copies", "shards", "pipeline", "tensor"))
        self._stages: dict[int, nn.Module] = {}
        self._pipeline: Pipeline | None = None

    def mesh(self) -> DeviceMesh:
        """Mesh of the groups, for this worker's part of the model."""
        if self._job.point.sync == "ddp":
            return self._grid["copies", "shards"]
        return self._grid["shards"]

    def divide(
        self, model: nn.Module, blocks: list[nn.Module]
    ) -> tuple[nn.Module, list[nn.Module]]:
        """Share the layers, then keep the stages of this worker."""
        point = self._job.point
        if point.tensor_parallel > 1:
            share_layers(point, model, self._grid["tensor"])
        if point.pipeline_parallel == 1:
            return model, blocks
        parts = stages_of(point.workload, model, point.stages)
        place = self._grid["pipeline"].get_local_rank()
        numbers = range(place, point.stages, point.pipeline_parallel)
        self._stages = {number: Stage(self._job, parts[number]) for number in numbers}
        stages = nn.ModuleList(self._stages.values())
        kept = set(stages.modules())
        return stages, [block for block in blocks if block in kept]

    def shard(self, model: nn.Module, blocks: Sequence[nn.Module]) -> FSDPModule | None:
        """Shard the blocks and the rest of the model, or of each stage.

        Returns:
            What was sharded last, where passes exchange gradients.
        """
        point = self._job.point
        root = None
        if point.data_parallel > 1:
            for part in self._stages.values() or [model]:
                inside = set(part.modules())
                root = super().shard(part, [block for block in blocks if block in inside])
        if point.pipeline_parallel > 1:
            group = self._grid["pipeline"].get_group()
            self._pipeline = Pipeline(self._job, self._stages, group)
            self.trained = model
            return None
        if root is not None and point.sync == "ddp":
            sharded = root
            # As `DistributedDataParallel` has it: the passes before the last exchange nothing.
            model.no_sync = lambda: _unsynchronized(sharded)  # type: ignore[assignment]  # no module
        return root

    def optimized(self, model: nn.Module) -> Iterable[Any]:
        """Groups of parameters on one mesh; as they come for an optimizer of the workload's own."""
        if self._job.point.has_own_optimizer:
            return model.parameters()
        return [{"params": group} for group in by_mesh(model.parameters())]

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass and update; in a pipeline by its schedule."""
        if self._pipeline is None:
            return super().step(batches, clock, without)
        loss = self._pipeline.run(batches, clock)
        self.update(clock, exchange=True)
        return loss

    def clip(self) -> None:
        """Complete the gradients, and clip them by the norm over all workers of a model."""
        point = self._job.point
        if point.sequence_parallel:
            sum_partial_gradients(self._parameters)
        if point.clip_norm is None:
            return
        workers = point.workers // point.pipeline_parallel
        squared = squared_norm(self._parameters, workers=workers, device=self._job.device)
        gradients = [own_part(parameter.grad) for parameter in self._parameters]
        scale_to(point.clip_norm, gradients, squared)

    def counters(self) -> Mapping[str, Any]:
        """Seconds in the pipeline, and of them those of this worker's own work."""
        counted = super().counters()
        if self._pipeline is None:
            return counted
        return {**counted, **self._pipeline.take_times()}

    def checkpoint_parts(self) -> tuple[nn.Module, torch.optim.Optimizer] | None:
        """Model and optimizer; None in a pipeline, whose workers have other parameters."""
        if self._pipeline is not None:
            return None
        return super().checkpoint_parts()


@contextlib.contextmanager
def _unsynchronized(root: FSDPModule) -> Iterator[None]:
    """Keep gradients of passes in this context on their worker."""
    root.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        root.set_requires_gradient_sync(True)
