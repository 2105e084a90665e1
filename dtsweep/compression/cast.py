"""`fp16`, `bf16`: values in half as many bytes, added up as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from dtsweep.compression.compression import Compression
from dtsweep.compression.scale_blocks import in_chunks


class _Cast(Compression):
    """Each worker divides by their number before it rounds: a sum in fp16 overflows at 65504."""

    def compress(self, values: Tensor) -> Tensor:
        """Round to nearest."""
        payload = torch.empty(len(values), dtype=self.payload_dtype, device=values.device)
        for cut in in_chunks(values):
            payload[cut].copy_(values[cut] / self._layout.ranks)
        return payload

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add."""
        values.add_(payload, alpha=scale)

    def decompress(self, payload: Tensor, values: Tensor) -> None:
        """Copy."""
        values.copy_(payload)


class Fp16(_Cast):
    """IEEE half precision: 11 bits of mantissa, from 6e-8 to 65504."""

    payload_dtype = torch.float16


class Bf16(_Cast):
    """The range of fp32 with 8 bits of mantissa."""

    payload_dtype = torch.bfloat16
