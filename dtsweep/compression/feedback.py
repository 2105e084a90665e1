"""Error feedback: what a payload leaves out is added to the next values (Seide et al. 2014)."""

from __future__ import annotations

from torch import Tensor

from dtsweep.compression.compression import Compression, Layout
from dtsweep.sweep.point import Point


class ErrorFeedback(Compression):
    """Keeps, for each value, what has not travelled yet."""

    def __init__(self, layout: Layout, point: Point) -> None:
        """Keep nothing until the first payload: who only reads payloads needs no room for it."""
        super().__init__(layout, point)
        self._left: Tensor | None = None

    def compress(self, values: Tensor) -> Tensor:
        """Compress values and what was left out before; keep what is left out now."""
        left = self._left = values.clone() if self._left is None else self._left.add_(values)
        payload = self._compress(left)
        self.add_to(left, payload, -float(self._layout.ranks))
        return payload

    def _compress(self, values: Tensor) -> Tensor:
        """Make what travels of values that have what was left out before; not written to."""
        raise NotImplementedError
