"""Gradients that a worker pushes to a shard of the parameter server, as bytes and as values."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.compression.compression import Compression, Layout, compression_for
from dtsweep.sweep.point import Point

_CPU = torch.device("cpu")


def read_only(values: NDArray[Any]) -> Tensor:
    """A tensor in the memory of an array of Ray's object store, which nobody writes to."""
    with warnings.catch_warnings():
        # torch has no read-only tensors, and says so.
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(values)


class Pushes:
    """One end of the way from one worker to one shard: the worker packs, the shard unpacks."""

    def __init__(
        self,
        point: Point,
        shapes: Sequence[torch.Size],
        device: torch.device = _CPU,
        *,
        dtype: torch.dtype = torch.float32,
        notes_norm: bool = False,
    ) -> None:
        """Prepare for the parameters of a shard.

        Args:
            point: says what compresses them.
            shapes: of the parameters, complex ones as pairs of real numbers.
            device: of the values.
            dtype: of the values.
            notes_norm: whether to set `squared_norm`.
        """
        self.squared_norm = math.nan
        """Squared norm of the last packed gradients, as the shard reads them."""
        self._notes_norm = notes_norm
        self._numel = sum(shape.numel() for shape in shapes)
        self._dtype = dtype
        self._device = device
        layout = Layout(numel=self._numel, dtype=dtype, device=device, shapes=shapes)
        self._compression: Compression | None = None
        if point.compression:
            self._compression = compression_for(point, layout)

    def pack(self, values: Tensor) -> NDArray[Any]:
        """Make what is pushed of the gradients: (elements,)."""
        if self._compression is None:
            self._note_norm(values)
            return values.cpu().numpy()
        compressed = self._compression.compress_alone(values)
        if self._notes_norm:
            self._note_norm(self._read(compressed))
        return compressed.view(torch.uint8).cpu().numpy()

    def unpack(self, pushed: NDArray[Any]) -> Tensor:
        """The gradients of another end: (elements,), which may be read, not written."""
        if self._compression is None:
            return read_only(pushed).to(self._device)
        # A copy: compressions may write into it.
        payload = torch.from_numpy(np.array(pushed)).to(self._device)
        self._compression.expect()
        return self._read(payload)

    def changed(self, values: Tensor) -> Tensor:
        """Values as the server would read them; they count as pushed."""
        if self._compression is None:
            return values
        return self._read(self._compression.compress_alone(values))

    def _note_norm(self, values: Tensor) -> None:
        if self._notes_norm:
            self.squared_norm = float(nn.utils.get_total_norm([values])) ** 2

    def _read(self, payload: Tensor) -> Tensor:
        assert self._compression is not None
        values = torch.zeros(self._numel, dtype=self._dtype, device=payload.device)
        self._compression.add_to(values, payload.view(self._compression.payload_dtype))
        return values
