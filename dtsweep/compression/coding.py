"""Entropy coding: the bytes of a payload in fewer, where some are more frequent than others."""

from __future__ import annotations

import numpy as np
import torch
import zstandard
from torch import Tensor

from dtsweep.sweep.point import Point

_LEVEL = 1
"""Of 1 to 22: the fastest. More takes several times as long, for a few percent."""


class Coding:
    """zstd; both ways in main memory, so that on a GPU a payload is copied there and back."""

    def __init__(self) -> None:
        """Make what a process uses again and again."""
        self._encoder = zstandard.ZstdCompressor(level=_LEVEL)
        self._decoder = zstandard.ZstdDecompressor()

    def encode(self, payload: Tensor) -> Tensor:
        """Bytes, (elements,), that say the same, on the same device; at least one."""
        coded = self._encoder.compress(payload.cpu().numpy().data)
        return torch.from_numpy(np.frombuffer(bytearray(coded), dtype=np.uint8)).to(payload.device)

    def decode(self, coded: Tensor) -> Tensor:
        """The payload again."""
        payload = self._decoder.decompress(coded.cpu().numpy().data)
        return torch.from_numpy(np.frombuffer(bytearray(payload), dtype=np.uint8)).to(coded.device)


def coding_for(point: Point) -> Coding | None:
    """Make what codes a point's payloads; None where nothing does."""
    if point.compression_coding is None:
        return None
    return Coding()
