"""`sign`: a bit for each value, with error feedback (EF-signSGD, Karimireddy et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.compression.scale_blocks import blocks_in, in_rows

BITS = 8


class Sign(ErrorFeedback):
    """Payload: each block's mean magnitude, then the sign bits.

    Byte i has the bits of values i, i + bytes, and so on.
    """

    def _compress(self, values: Tensor) -> Tensor:
        width = _bytes_for(len(values))
        bits = torch.zeros(BITS * width, dtype=torch.uint8, device=values.device)
        scales = torch.empty(blocks_in(len(values)), dtype=torch.float32, device=values.device)
        for cut, blocks, rows in in_rows(values):
            scales[blocks] = rows.abs().mean(dim=1).float()
            bits[cut].view(rows.shape).copy_(rows >= 0)
        planes = bits.view(BITS, width)
        packed = planes[0].clone()
        for bit in range(1, BITS):
            packed |= planes[bit] << bit
        return torch.cat([scales.view(torch.uint8), packed])

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add or subtract each block's mean magnitude."""
        head = 4 * blocks_in(len(values))
        # A copy: a payload may begin at any byte.
        scales = payload[:head].clone().view(torch.float32).to(values.dtype) * scale
        packed = payload[head : head + _bytes_for(len(values))]
        bits = torch.cat([(packed >> bit) & 1 for bit in range(BITS)])
        for cut, blocks, rows in in_rows(values):
            signs = bits[cut].view(rows.shape).to(values.dtype).mul_(2).sub_(1)
            rows.addcmul_(signs, scales[blocks, None])


def _bytes_for(numel: int) -> int:
    return -(-numel // BITS)
