"""`sign`: a bit for each value, with error feedback (EF-signSGD, Karimireddy et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dtsweep.compression.compression import Layout
from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.compression.scale_blocks import blocks_in, in_rows
from dtsweep.sweep.point import Point

_BITS = 8


class Sign(ErrorFeedback):
    """Payload: each block's mean magnitude, the sign bits, and a bit for each row of a parameter.

    A row of zeros stays zero: a sign alone would make it the mean magnitude. Rows are those of the
    first dimension, in one dimension single values. A piece that holds no whole parameter has no
    rows. Byte i has the bits of values i, i + bytes, and so on.
    """

    def __init__(self, layout: Layout, point: Point) -> None:
        """Count the rows."""
        super().__init__(layout, point)
        self._rows = sum(_rows_of(shape) for shape in layout.shapes)
        self._lengths: Tensor | None = None

    def _compress(self, values: Tensor) -> Tensor:
        width = _bytes_for(len(values))
        bits = torch.zeros(_BITS * width, dtype=torch.uint8, device=values.device)
        scales = torch.empty(blocks_in(len(values)), dtype=torch.float32, device=values.device)
        for cut, blocks, rows in in_rows(values):
            scales[blocks] = rows.abs().mean(dim=1).float()
            bits[cut].view(rows.shape).copy_(rows >= 0)
        is_used = torch.zeros(
            _BITS * _bytes_for(self._rows), dtype=torch.uint8, device=values.device
        )
        for places, rows in self._parameter_rows(values):
            is_used[places] = rows.any(dim=1).to(torch.uint8)
        return torch.cat([scales.view(torch.uint8), _packed(bits), _packed(is_used)])

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add or subtract each block's mean magnitude, except in rows of zeros."""
        head = 4 * blocks_in(len(values))
        # A copy: a payload may begin at any byte.
        scales = payload[:head].clone().view(torch.float32).to(values.dtype) * scale
        tail = head + _bytes_for(len(values))
        signs = _unpacked(payload[head:tail]).view(torch.int8).mul_(2).sub_(1)
        if self._rows:
            is_used = _unpacked(payload[tail : tail + _bytes_for(self._rows)]).view(torch.int8)
            lengths = self._row_lengths(values.device)
            # One operation, not one for each parameter: this is done for each worker's payload.
            of_values = is_used[: self._rows].repeat_interleave(lengths, output_size=len(values))
            signs[: len(values)].mul_(of_values)
        for cut, blocks, rows in in_rows(values):
            rows.addcmul_(signs[cut].view(rows.shape).to(values.dtype), scales[blocks, None])

    def _row_lengths(self, device: torch.device) -> Tensor:
        """(rows,) number of values of each row."""
        if self._lengths is None:
            counts = [
                (_rows_of(shape), shape.numel() // max(1, _rows_of(shape)))
                for shape in self._layout.shapes
            ]
            lengths = [torch.full((rows,), width, dtype=torch.int64) for rows, width in counts]
            self._lengths = torch.cat(lengths).to(device)
        return self._lengths

    def _parameter_rows(self, values: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Places of each parameter's rows among all rows, and a view of them: (rows, values)."""
        place = begin = 0
        for shape in self._layout.shapes:
            count, numel = _rows_of(shape), shape.numel()
            if numel:
                yield (
                    slice(place, place + count),
                    values[begin : begin + numel].view(count, -1),
                )
            place += count
            begin += numel


def _rows_of(shape: torch.Size) -> int:
    if not shape:
        return 1
    return shape[0]


def _packed(bits: Tensor) -> Tensor:
    planes = bits.view(_BITS, -1)
    packed = planes[0].clone()
    for bit in range(1, _BITS):
        packed |= planes[bit] << bit
    return packed


def _unpacked(packed: Tensor) -> Tensor:
    return torch.cat([(packed >> bit) & 1 for bit in range(_BITS)])


def _bytes_for(numel: int) -> int:
    return -(-numel // _BITS)
