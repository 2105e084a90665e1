"""`randomk`: values at random positions with error feedback (Stich et al. 2018).

All workers draw the same positions.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dtsweep.compression.compression import Layout
from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.sweep.point import Point


class RandomK(ErrorFeedback):
    """Payload: the values alone, so that payloads can be summed.

    The positions follow from the number of payloads before it.
    """

    def __init__(self, layout: Layout, point: Point) -> None:
        """Take the share of the values that travels."""
        super().__init__(layout, point)
        assert point.compression_ratio is not None
        self._count = min(layout.numel, math.ceil(point.compression_ratio * layout.numel))
        self._drawn = 0
        self.payload_dtype = layout.dtype
        self._random = torch.Generator()
        self._positions = torch.empty(0, dtype=torch.int64, device=layout.device)

    def expect(self) -> None:
        """Draw the places of the payload that follows."""
        self._drawn += 1
        # Mixed, because torch's generators of a CPU take no more than 32 bits of a seed.
        self._random.manual_seed(
            int(np.random.SeedSequence([self._layout.seed, self._drawn]).generate_state(1)[0])
        )
        self._positions = self._draw().to(self._layout.device)

    def _compress(self, values: Tensor) -> Tensor:
        self.expect()
        return values[self._positions] / self._layout.ranks

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add what travelled where it belongs."""
        values.index_add_(0, self._positions, payload, alpha=scale)

    def _draw(self) -> Tensor:
        """Draw one position in each of equal parts with a random offset.

        Each position is equally likely.
        """
        numel = self._layout.numel
        count = self._count
        if not count:
            return torch.empty(0, dtype=torch.int64)
        ends = torch.arange(count + 1) * numel // count
        within = torch.rand(count, generator=self._random, dtype=torch.float64) * ends.diff()
        return (
            torch.randint(numel, (1,), generator=self._random) + ends[:-1] + within.long()
        ) % numel
