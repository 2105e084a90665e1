"""Some parameters' values in one tensor, one behind another, to be exchanged together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Bucket:
    """A tensor that has room for the gradients, or the changes, of some parameters of one type."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room, filled with zeros."""
        self.parameters = tuple(parameters)
        self.values = parameters[0].detach().new_zeros(sum(p.numel() for p in parameters))
        parts = self.values.split([p.numel() for p in parameters])
        self.views = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]

    @property
    def shapes(self) -> list[torch.Size]:
        """Of the parameters."""
        return [parameter.shape for parameter in self.parameters]


def real_view(tensor: torch.Tensor) -> torch.Tensor:
    """View complex numbers as pairs of real ones, in a last dimension of two."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.detach())
    return tensor.detach()


def buckets_of(model: nn.Module, size: int | None) -> list[Bucket]:
    """Deal out the parameters in the order in which backward comes to them, each type by itself.

    Args:
        model: whose parameters.
        size: bytes from which on a bucket is full; None has room for all.
    """
    of_type = defaultdict[torch.dtype, list[list[nn.Parameter]]](lambda: [[]])
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        lists = of_type[parameter.dtype]
        lists[-1].append(parameter)
        if size is not None and sum(p.numel() * p.element_size() for p in lists[-1]) >= size:
            lists.append([])
    return [Bucket(parameters) for lists in of_type.values() for parameters in lists if parameters]


def trained_by_type(model: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters that are trained, in the order of the model, a list for each type.

    The others are equal on all workers from the start on and stay so.
    """
    of_type = defaultdict[torch.dtype, list[nn.Parameter]](list)
    for parameter in model.parameters():
        if parameter.requires_grad:
            of_type[parameter.dtype].append(parameter)
    return list(of_type.values())


def values_of(tensors: Sequence[Tensor]) -> Tensor:
    """Copy the values of tensors of one type into one tensor: (elements,)."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@torch.no_grad()
def set_values(tensors: Sequence[Tensor], values: Tensor) -> None:
    """Write values, (elements,), into the tensors."""
    parts = values.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
