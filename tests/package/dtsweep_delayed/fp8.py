"""`fp8`: a byte for each value, in the format e5m2."""

import torch
from torch import Tensor

from dtsweep.compression.compression import Compression


class Fp8(Compression):
    """Three digits of precision in bits, from 1.5e-5 to 57344."""

    def compress(self, values: Tensor) -> Tensor:
        return values.to(torch.float8_e5m2).view(torch.uint8)

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        values.add_(payload.view(torch.float8_e5m2).to(values.dtype), alpha=scale)
