"""`hierarchical`: gradients are summed inside each node, the sums across nodes, each worker a share of them."""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.nn import functional

from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.groups import IN_NODE, NODES, all_gather, mesh_of_nodes, reduce_scatter
from dtsweep.sync.mode import MakeOptimizer


class Hierarchical(AfterBackwardMode):
    """Reduce-scatter in the node, all-reduce of a share across nodes, all-gather in the node."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Find the groups, before anything else is exchanged."""
        self._mesh = mesh_of_nodes(self._job)
        super().prepare(model, make_optimizer)

    def sum_over_ranks(self, values: torch.Tensor) -> None:
        """Sum; what does not divide by the workers of a node is filled up with zeros."""
        size = self._mesh.size(1)
        inside, across = self._mesh.get_group(IN_NODE), self._mesh.get_group(NODES)
        if size == 1:
            distributed.all_reduce(values, group=across)
            return
        missing = -values.numel() % size
        whole = functional.pad(values, (0, missing)) if missing else values
        share = whole.new_empty(whole.numel() // size)
        reduce_scatter(share, whole, inside)
        if self._mesh.size(0) > 1:
            distributed.all_reduce(share, group=across)
        all_gather(whole, share, inside)
        if missing:
            values.copy_(whole[: values.numel()])
