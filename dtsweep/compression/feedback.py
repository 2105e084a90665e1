"""Error feedback: what a payload leaves out is added to the next values (Seide et al. 2014)."""

from __future__ import annotations

from torch import Tensor

from dtsweep.compression.compression import Compression, Layout
from dtsweep.sweep.point import Point


class ErrorFeedback(Compression):
    """Keeps a residual for each value: what has not travelled yet."""

    def __init__(self, layout: Layout, point: Point) -> None:
        """Allocate nothing before the first payload: a mere reader of payloads has no residual."""
        super().__init__(layout, point)
        self._residual: Tensor | None = None

    def compress(self, values: Tensor) -> Tensor:
        """Compress values and what was left out before; keep what is left out now.

        What is not finite is forgotten: kept, it would be in all later payloads.
        """
        if self._residual is None:
            self._residual = values.clone()
        else:
            self._residual.add_(values)
        payload = self._compress(self._residual)
        self.add_to(self._residual, payload, -float(self._layout.ranks))
        self._residual.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        return payload

    def _compress(self, values: Tensor) -> Tensor:
        """Make the payload of values with the residual added, which are not written to."""
        raise NotImplementedError
