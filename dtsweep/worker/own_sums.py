"""Sums of a user's gradients and parameters in one step, for a comparison between ranks."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.optim import Optimizer

from dtsweep.sync.groups import position
from dtsweep.worker.copies import is_flat, own_part, part_of
from dtsweep.worker.gradients import sums_and_norms

Sums = list[list[float]]
"""Of each tensor: sum, norm, number of elements, as `sums_and_norms` has them."""


def collectives() -> int | None:
    """Number of collectives that this rank has begun in all its groups; None if it is unknown.

    Nothing is sent without a process group.
    """
    if not distributed.is_initialized():
        return 0
    try:
        return position()
    except RuntimeError:
        return None


def calls_since(before: int | None) -> int | None:
    """Number of collectives since another one; None if groups were made or destroyed since."""
    now = collectives()
    if now is None or before is None or now < before:
        return None
    return now - before


@dataclass
class StepSums:
    """Gradients and parameters of the optimizers that step in one step of the loop."""

    rank: int
    parts: list[str] = field(default_factory=list)
    """Of each parameter the name of the part that this rank has; empty of a whole one."""
    shapes: list[str] = field(default_factory=list)
    gradients: Sums | None = field(default_factory=list)
    given: int = 0
    """Parameters that have a gradient, of zeros or not."""
    before: Sums | None = field(default_factory=list)
    """Parameters before the update; None if they can't be read."""
    after: Sums | None = field(default_factory=list)

    def begin(self, optimizer: Optimizer) -> None:
        """Note the parameters of an optimizer before its step."""
        self.before = _joined(self.before, [own_part(p) for p in _parameters(optimizer)])

    def end(self, optimizer: Optimizer) -> None:
        """Note the gradients that it applied, and its parameters after that."""
        parameters = _parameters(optimizer)
        self.parts += [part_of(p, rank=self.rank) for p in parameters]
        self.shapes += [_shape(p) for p in parameters]
        self.gradients = _joined(self.gradients, [own_part(p.grad) for p in parameters], parameters)
        self.given += sum(p.grad is not None for p in parameters)
        self.after = _joined(self.after, [own_part(p) for p in parameters])

    def as_json(self) -> dict[str, Any]:
        """Values for the other ranks."""
        shapes = hashlib.sha256("\n".join(self.shapes).encode()).hexdigest()
        values = {name: value for name, value in vars(self).items() if name != "rank"}
        return {**values, "shapes": shapes}


def sums_of(tensors: Iterable[torch.Tensor]) -> Sums | None:
    """Sums of this rank's parts of tensors; None if some can't be read."""
    return _joined([], [own_part(tensor) for tensor in tensors])


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _shape(parameter: torch.Tensor) -> str:
    if is_flat(parameter):
        return "a shard"
    return f"{tuple(parameter.shape)} {parameter.dtype}"


def _joined(
    sums: Sums | None,
    tensors: Sequence[torch.Tensor | None],
    like: Sequence[torch.Tensor] | None = None,
) -> Sums | None:
    """Add sums of further tensors; None if some can't be read.

    Nothing is raised: a rank that fails alone would keep the others waiting.
    """
    if sums is None:
        return None
    sizes = like or tensors
    try:
        counts = [0 if tensor is None else tensor.numel() for tensor in sizes]
        rows: Sums = sums_and_norms(tensors, counts=counts).tolist()
    except Exception:  # noqa: BLE001  # whatever a class of tensors may raise
        traceback.print_exc()
        return None
    return [*sums, *rows]
