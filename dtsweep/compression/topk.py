"""`topk`: values of largest magnitude with error feedback.

Aji and Heafield 2017, Stich et al. 2018.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dtsweep.compression.compression import Layout
from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.compression.scale_blocks import in_chunks
from dtsweep.sweep.point import Point

SAMPLE, AT_LEAST = 2**13, 2**16
"""Number of values sampled for the threshold, and least number of values for which it pays."""


class TopK(ErrorFeedback):
    """A payload is the positions, each as its distance to the one before, then the values."""

    def __init__(self, layout: Layout, point: Point) -> None:
        """Take the share of the values that travels.

        Raises:
            ValueError: more values than a position of 4 bytes reaches.
        """
        super().__init__(layout, point)
        if layout.numel >= 2**31:
            raise ValueError(
                f"topk takes less than 2**31 values at a time, not {layout.numel}; set bucket_bytes"
            )
        assert point.compression_ratio is not None
        self._ratio = point.compression_ratio

    def _compress(self, values: Tensor) -> Tensor:
        positions = self._largest(values).sort().values
        distances = torch.diff(positions, prepend=positions.new_zeros(1)).to(torch.int32)
        return torch.cat([distances.view(torch.uint8), values[positions].view(torch.uint8)])

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add what travelled where it belongs."""
        count = len(payload) // (4 + values.element_size())
        # Copies: a payload may begin at any byte.
        distances = payload[: 4 * count].clone().view(torch.int32)
        entries = payload[4 * count :].clone()
        values.index_add_(0, distances.cumsum(0), entries.view(values.dtype), alpha=scale)

    def _largest(self, values: Tensor) -> Tensor:
        """Positions of the largest magnitudes; NaN counts as larger than all."""
        numel = len(values)
        count = min(numel, math.ceil(self._ratio * numel))
        # On a GPU the host would wait for the number of candidates, and `topk` is a radix select.
        is_sampled = values.device.type == "cpu" and numel >= AT_LEAST
        if is_sampled and 4 * count <= numel:
            # A guess by a sample, below the true limit as good as always: only what is above it has
            # to be put in order.
            sample = values[:: numel // SAMPLE].abs()
            rank = len(sample) * count / numel
            of_sample = math.ceil(rank + 4 * math.sqrt(rank) + 4)
            limit = sample.topk(of_sample).values.min()
            positions = [
                (values[cut].abs() < limit).logical_not_().nonzero()[:, 0] + cut.start
                for cut in in_chunks(values)
            ]
            candidates = torch.cat(positions)
            if len(candidates) >= count:
                return candidates[values[candidates].abs().topk(count, sorted=False).indices]
        return values.abs().topk(count, sorted=False).indices
