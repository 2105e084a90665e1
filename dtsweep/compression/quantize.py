"""`int8`, `int4`: integers between the least and the largest value of a block.

Rounding is random and unbiased.

As QSGD (Alistarh et al. 2017), with the largest magnitude of each block as its scale.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, distributed

from dtsweep.compression.compression import Compression, Layout
from dtsweep.compression.scale_blocks import blocks_in, in_rows, largest_of
from dtsweep.sweep.point import Point

_ROUNDER = 2.0**23
"""Number from which on float32 has whole numbers alone.

After it was added to a whole number, the lowest byte of the sum is the lowest byte of the addend.
"""


class _Quantized(Compression):
    """Payload: the scales of all blocks, then the codes.

    A block with a value that is not finite is decoded as NaN.
    """

    zero: int
    """The code of 0; others are whole steps away."""

    def __init__(self, layout: Layout, point: Point) -> None:
        """Draw from numbers of its own: others than the workload's, and on each worker others."""
        super().__init__(layout, point)
        rank = 0
        if distributed.is_initialized():
            rank = distributed.get_rank()
        # Mixed, because torch's generators of a CPU take no more than 32 bits of a seed.
        seed = np.random.SeedSequence([layout.seed, rank]).generate_state(1)[0]
        self._random = torch.Generator(layout.device).manual_seed(int(seed))

    def compress(self, values: Tensor) -> Tensor:
        """Divide by the scale, and round up or down, the nearer the likelier."""
        codes = torch.empty(len(values), dtype=torch.uint8, device=values.device)
        scales = torch.empty(blocks_in(len(values)), dtype=torch.float32, device=values.device)
        for cut, blocks, rows in in_rows(values):
            # A little less than the codes could hold, so that no rounding of a float carries one
            # past them.
            scale = scales[blocks].copy_(largest_of(rows).float() / (self.zero - 1.1))
            # A block of zeros, or of numbers too small to divide by, comes out as zeros.
            inverse = scale.reciprocal().nan_to_num_(nan=0.0, posinf=0.0)
            scaled = rows.float() * inverse[:, None]
            scaled.add_(self._noise(rows), alpha=2.0**-16)
            rounded = scaled.add_(_ROUNDER + self.zero)
            codes[cut].view(rows.shape).copy_(rounded.view(torch.int32))
        return torch.cat([scales.view(torch.uint8), self._pack(codes)])

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Multiply codes by their scales, and add."""
        self._read(values, payload, scale, adds=True)

    def decompress(self, payload: Tensor, values: Tensor) -> None:
        """Multiply codes by their scales."""
        self._read(values, payload, 1.0, adds=False)

    def _read(self, values: Tensor, payload: Tensor, scale: float, *, adds: bool) -> None:
        head = 4 * blocks_in(len(values))
        # A copy: a payload may begin at any byte.
        scales = payload[:head].clone().view(torch.float32) * scale
        codes = self._unpack(payload[head:], len(values))
        for cut, blocks, rows in in_rows(values):
            # Not in the type of the values: in half precision a scale would be another, or 0.
            steps = (
                codes[cut]
                .view(rows.shape)
                .to(scales.dtype)
                .sub_(self.zero)
                .mul_(scales[blocks, None])
            )
            rows.add_(steps) if adds else rows.copy_(steps)

    def _noise(self, rows: Tensor) -> Tensor:
        """Evenly from -1/2 to 1/2, times 2**16: four of each number drawn."""
        drawn = torch.empty(-(-rows.numel() // 4), dtype=torch.int64, device=rows.device)
        drawn.random_(-(2**63), None, generator=self._random)
        return drawn.view(torch.int16)[: rows.numel()].view(rows.shape)

    def _pack(self, codes: Tensor) -> Tensor:
        return codes

    def _unpack(self, packed: Tensor, numel: int) -> Tensor:
        return packed[:numel]


class Int8(_Quantized):
    """255 codes, a byte each."""

    zero = 128


class Int4(_Quantized):
    """15 codes, two in a byte: one of the first half of the values, one of the second."""

    zero = 8

    def _pack(self, codes: Tensor) -> Tensor:
        half = (len(codes) + 1) // 2
        packed = codes[:half].clone()
        packed[: len(codes) - half] += codes[half:] << 4
        return packed

    def _unpack(self, packed: Tensor, numel: int) -> Tensor:
        half = (numel + 1) // 2
        return torch.cat([packed[:half] & 15, packed[: numel - half] >> 4])
