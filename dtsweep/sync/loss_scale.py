"""Updates with a scaled loss, as fp16 needs them: those with inf or nan are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.amp import GradScaler


class _Step(torch.optim.Optimizer):
    """All trained parameters, as a scaler takes them; a step is the mode's own update."""

    update: Callable[[], Any]
    count = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no closure
        del closure
        self.count += 1
        self.update()


class Updates:
    """Updates of a mode, with a scaler those that all workers make.

    Exchanged gradients are equal on all workers, and of shards torch shares what was found.
    """

    def __init__(
        self, scaler: GradScaler | None = None, parameters: Iterable[nn.Parameter] = ()
    ) -> None:
        """Take the scaler of the losses, and the parameters, in the mode's optimizer or not."""
        self._scaler, self._asked = scaler, 0
        if scaler is not None:
            self._step = _Step([p for p in parameters if p.requires_grad], {})

    def unscale(self) -> None:
        """Divide the gradients, before they are clipped, and look for inf and nan."""
        if self._scaler is not None:
            self._scaler.unscale_(self._step)

    def make(self, update: Callable[[], Any]) -> None:
        """Make an update, unless a gradient is inf or nan; then lower the scale."""
        if self._scaler is None:
            update()
            return
        self._step.update = update
        self._scaler.step(self._step)
        self._scaler.update()
        self._asked += 1

    def counters(self) -> Mapping[str, int]:
        """`skipped_updates` since the last call; nothing without a scaler."""
        if self._scaler is None:
            return {}
        skipped = self._asked - self._step.count
        self._asked = self._step.count = 0
        return {"skipped_updates": skipped}
