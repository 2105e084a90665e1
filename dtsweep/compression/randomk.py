"""`randomk`: values at random positions with error feedback (Stich et al. 2018).

All workers draw the same positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dtsweep.compression.compression import Layout
from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.sweep.point import Point

_LOW_BITS = 2**32 - 1
"""Mask of the 32 bits that random numbers have."""

_MULTIPLIER = 0x45D9F3B
"""Multiplier of a multiply-xorshift hash of 32 bits."""


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
        self._positions = torch.empty(0, dtype=torch.int64, device=layout.device)

    def expect(self) -> None:
        """Draw the places of the payload that follows."""
        self._drawn += 1
        if self._count:
            self._positions = self._draw()

    def _compress(self, values: Tensor) -> Tensor:
        self.expect()
        return values[self._positions] / self._layout.ranks

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add what travelled where it belongs."""
        values.index_add_(0, self._positions, payload, alpha=scale)

    def _draw(self) -> Tensor:
        """Draw one position in each of equal parts with a random offset.

        Each position is equally likely. The host draws the offset alone, and waits for nothing.
        """
        numel = self._layout.numel
        count = self._count
        sequence = np.random.SeedSequence([self._layout.seed, self._drawn])
        offset, keys = sequence.generate_state(2, np.uint64).tolist()
        indices = torch.arange(count + 1, device=self._layout.device)
        ends = indices * numel // count
        within = random_numbers(indices[:-1], divmod(keys, 2**32)) % ends.diff()
        positions: Tensor = (ends[:-1] + within + offset % numel) % numel
        return positions


def random_numbers(indices: Tensor, keys: Sequence[int]) -> Tensor:
    """Draw random numbers by a counter-based generator: each is a hash of its index and the keys.

    They are the same on all devices. torch's generators draw other numbers on a GPU than on a CPU.

    Args:
        indices: (numbers,) in int64, at least 0 and less than 2**32.
        keys: of the sequence of numbers, in the same range.

    Returns:
        (numbers,) in int64, uniform in the same range.
    """
    numbers = indices
    for key in keys:
        numbers = numbers ^ key
        for _ in range(2):
            # A product of 32 by 27 bits does not overflow 64.
            numbers.bitwise_xor_(numbers >> 16).mul_(_MULTIPLIER).bitwise_and_(_LOW_BITS)
        numbers.bitwise_xor_(numbers >> 16)
    return numbers
