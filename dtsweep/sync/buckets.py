"""Some parameters' values in one tensor, one behind another, to be exchanged together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Bucket:
    """A tensor that has room for the gradients, or the changes, of some parameters of one type.

    Its values are real: complex numbers are pairs in it. Its views have the parameters' type.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room, filled with zeros."""
        self.parameters = tuple(parameters)
        sizes = [shape.numel() for shape in self.shapes]
        self.values = real_view(parameters[0]).new_zeros(sum(sizes))
        parts = zip(self.values.split(sizes), self.shapes, strict=True)
        self.views = [part.view(shape) for part, shape in parts]
        if parameters[0].is_complex():
            self.views = [torch.view_as_complex(view) for view in self.views]

    @property
    def shapes(self) -> list[torch.Size]:
        """Shapes of the parameters' real views."""
        return [real_view(parameter).shape for parameter in self.parameters]


def own_part(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The part of a tensor that this rank has; any sum of the whole would need an exchange."""
    if tensor is None:
        return None
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    return tensor


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
    for parameter in reversed(trainable_parameters(model)):
        lists = of_type[parameter.dtype]
        lists[-1].append(parameter)
        if size is not None and sum(p.numel() * p.element_size() for p in lists[-1]) >= size:
            lists.append([])
    return [Bucket(parameters) for lists in of_type.values() for parameters in lists if parameters]


def trainable_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that are trained, in the order of the model.

    The others are equal on all workers from the start on, and stay so: no mode exchanges them.
    """
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def trained_by_type(model: nn.Module) -> list[list[nn.Parameter]]:
    """Parameters that are trained, in the order of the model, a list for each type."""
    of_type = defaultdict[torch.dtype, list[nn.Parameter]](list)
    for parameter in trainable_parameters(model):
        of_type[parameter.dtype].append(parameter)
    return list(of_type.values())


def values_of(tensors: Sequence[Tensor]) -> Tensor:
    """Copy the values of tensors of one type into one real tensor: (elements,).

    A complex number is two elements.
    """
    return torch.cat([real_view(tensor.resolve_conj()).reshape(-1) for tensor in tensors])


@torch.no_grad()
def set_values(tensors: Sequence[Tensor], values: Tensor) -> None:
    """Write values, (elements,), into the tensors, as `values_of` gives them."""
    views = [real_view(tensor) for tensor in tensors]
    parts = values.split([view.numel() for view in views])
    for view, part in zip(views, parts, strict=True):
        view.copy_(part.view_as(view))
