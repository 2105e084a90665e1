"""Base class of all compressions, and the layout of the tensor that one works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of a flat tensor that is exchanged in every step or period.

    It holds gradients or changes of some parameters, or a part of them.
    """

    numel: int
    dtype: torch.dtype
    device: torch.device

    shapes: Sequence[torch.Size] = ()
    """Shapes of the parameters that lie in it one behind another.

    Empty for a piece that holds no whole parameter.
    """

    ranks: int = 1
    """Number of workers whose payloads are added up on the way; 1 where they aren't."""

    seed: int = 0
    """Seed of the random numbers that all workers share."""

    def __post_init__(self) -> None:
        """Refuse shapes that don't fill the tensor."""
        assert not self.shapes or sum(shape.numel() for shape in self.shapes) == self.numel


class Compression:
    """Compress a tensor's values into the payload that is sent."""

    payload_dtype = torch.uint8

    def __init__(self, layout: Layout, point: Point) -> None:  # noqa: ARG002  # for those that read a field
        """Take the tensor's layout, and of the point what this compression reads."""
        self._layout = layout

    def compress(self, values: Tensor) -> Tensor:
        """Make what travels.

        Args:
            values: (elements,), not written to. Where the compression keeps what it left out,
                always as many as the layout has; else any number.

        Returns:
            A payload, 1-D: bytes (`uint8`); of those that are added up (`all_reduce`) floats,
            divided by `layout.ranks` beforehand, so that the sum is the mean's. Its length depends
            on nothing but the number of values; of none it is empty.
        """
        raise NotImplementedError

    def add_to(self, values: Tensor, payload: Tensor, scale: float = 1.0) -> None:
        """Add what a payload stands for, times `scale`, to values, in place."""
        raise NotImplementedError

    def decompress(self, payload: Tensor, values: Tensor) -> None:
        """Write what a payload stands for into values."""
        values.zero_()
        self.add_to(values, payload)

    def proceed(self, payload: Tensor) -> Tensor | None:  # noqa: ARG002  # for those that need several
        """From payloads that were added up to what is to be added up next.

        None where that was all.
        """
        return None

    def compress_alone(self, values: Tensor) -> Tensor:
        """Make a payload that needs no other, for one reader with the same layout and `ranks=1`."""
        return self.compress(values)

    def expect(self) -> None:
        """Count a payload of another rank, if the meaning of payloads depends on their number."""


def compression_for(point: Point, layout: Layout) -> Compression:
    """Make the object of a point's compression for one tensor."""
    assert point.compression is not None
    compression: Compression = _load_compression(point.compression)(layout, point)
    return compression


def _load_compression(name: str) -> type[Compression]:
    """Import the class of a compression."""
    module, _, attribute = COMPRESSIONS[name].implementation.partition(":")
    compression: type[Compression] = getattr(import_module(module), attribute)
    return compression
