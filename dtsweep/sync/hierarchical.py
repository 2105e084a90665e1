"""`hierarchical`: gradients are summed inside each node, then across nodes.

Each worker exchanges its share across nodes.
"""

from __future__ import annotations

from torch import Tensor, distributed, nn
from torch.nn import functional

from dtsweep.compression.exchange import Mark, Mean, mean_for
from dtsweep.measure.traffic import share_sent
from dtsweep.sync.after_backward import AfterBackwardMode
from dtsweep.sync.buckets import Bucket
from dtsweep.sync.groups import (
    IN_NODE,
    NODES,
    GroupCollectives,
    all_gather,
    mesh_of_nodes,
    reduce_scatter,
)
from dtsweep.sync.mode import MakeOptimizer

CHUNK_BYTES = 2**24
"""Gradients that are exchanged at a time, to limit the memory of copies."""


class Hierarchical(AfterBackwardMode):
    """Reduce-scatter in the node, all-reduce of a share across nodes, all-gather in the node.

    What is compressed travels across nodes; inside them everything does.
    """

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Find the groups, before anything else is exchanged."""
        mesh = mesh_of_nodes(self._job)
        self._size = mesh.size(1)
        self._nodes = mesh.size(0)
        self._inside = mesh.get_group(IN_NODE)
        self._across = mesh.get_group(NODES)
        super().prepare(model, make_optimizer)

    def average(self, values: Tensor, mean: Mean | None, mark: Mark) -> None:
        """Average the values, chunk by chunk; what is compressed stays in one piece."""
        if self._size == 1:
            self._average_across(values, mean, mark)
            return
        if mean is not None:
            self._average_chunk(values, mean, mark)
            return
        # A multiple of the workers of a node, so that only the last chunk is padded.
        shares = max(1, CHUNK_BYTES // (values.element_size() * self._size))
        for chunk in values.split(shares * self._size):
            self._average_chunk(chunk, None, mark)

    def _average_chunk(self, values: Tensor, mean: Mean | None, mark: Mark) -> None:
        """Average values, padded with zeros to a multiple of the workers of a node."""
        missing = -values.numel() % self._size
        if missing:
            padded = functional.pad(values, (0, missing))
        else:
            padded = values
        share = padded.new_empty(padded.numel() // self._size)
        reduce_scatter(share, padded, self._inside)
        share.div_(self._size)
        mark("sync")
        self._average_across(share, mean, mark)
        all_gather(padded, share, self._inside)
        if missing:
            values.copy_(padded[: values.numel()])

    def expected_bytes(self) -> float | None:
        """Of each bucket a reduce-scatter inside, an all-reduce across, a gather inside."""
        expected = 0.0
        for bucket in self._buckets:
            share_bytes = -(-bucket.values.numel() // self._size) * bucket.values.element_size()
            if self._size > 1:
                whole_bytes = share_bytes * self._size
                device = bucket.values.device
                expected += share_sent("reduce_scatter", self._inside, device) * whole_bytes
                expected += share_sent("all_gather", self._inside, device) * share_bytes
            expected += 2 * (self._nodes - 1) / self._nodes * share_bytes
        return expected

    def _average_across(self, share: Tensor, mean: Mean | None, mark: Mark) -> None:
        if mean is not None:
            super().average(share, mean, mark)
        elif self._nodes > 1:
            distributed.all_reduce(share, group=self._across)
            share.div_(self._nodes)

    def _make_mean(self, bucket: Bucket, *, seed: int) -> Mean:
        share = bucket.values.new_empty(-(-len(bucket.values) // self._size))
        return mean_for(self._job.point, share, GroupCollectives(self._across), seed=seed)
