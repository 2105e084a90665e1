"""Changes of parameters since workers last agreed on them, and their mean over workers."""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.distributed import distributed_c10d

from dtsweep.compression.exchange import Mark, Mean, mean_for
from dtsweep.sweep.point import Point
from dtsweep.sync.buckets import buckets_of
from dtsweep.sync.groups import GroupCollectives


class Changes:
    """This worker's changes of a period, in buckets, and the parameters at its start.

    What is averaged are changes: of parameters themselves a compression would lose most.
    """

    def __init__(self, model: nn.Module, point: Point) -> None:
        """Make room for the changes; workers have equal parameters now."""
        self.buckets = buckets_of(model, None)
        self.agreed = buckets_of(model, None)
        self.means: list[Mean] = []
        if point.compression:
            group = GroupCollectives(distributed_c10d._get_default_group())
            self.means = [
                mean_for(point, bucket.values, group, shapes=bucket.shapes, seed=index)
                for index, bucket in enumerate(self.buckets)
            ]
        self._workers = point.workers
        self.begin()

    @torch.no_grad()
    def begin(self) -> None:
        """Count changes from the present parameters on."""
        for agreed in self.agreed:
            torch._foreach_copy_(agreed.views, agreed.parameters)

    @torch.no_grad()
    def take(self) -> None:
        """Write this worker's changes into the buckets."""
        for bucket, agreed in zip(self.buckets, self.agreed, strict=True):
            torch._foreach_copy_(bucket.views, bucket.parameters)
            bucket.values.sub_(agreed.values)

    @torch.no_grad()
    def average(self, mark: Mark) -> None:
        """Replace the buckets' values by their means, compressed if the point says so.

        Args:
            mark: called with `sync` and `compress`.
        """
        for index, bucket in enumerate(self.buckets):
            if self.means:
                self.means[index].begin(bucket.values, mark)
                self.means[index].finish(bucket.values, mark)
            else:
                distributed.all_reduce(bucket.values.div_(self._workers))
                mark("sync")

    @torch.no_grad()
    def add_to_agreed(self) -> None:
        """Add the buckets' values to the parameters that workers agree on."""
        for bucket, agreed in zip(self.buckets, self.agreed, strict=True):
            agreed.values.add_(bucket.values)

    @torch.no_grad()
    def give(self) -> None:
        """Set the parameters to those that workers agree on."""
        for agreed in self.agreed:
            torch._foreach_copy_(agreed.parameters, agreed.views)
