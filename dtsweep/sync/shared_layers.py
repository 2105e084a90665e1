"""Tensor parallel: workers of a model share its layers, by torch's `parallelize_module`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

from dtsweep.sweep.point import Point
from dtsweep.sync.buckets import own_part


def share_layers(point: Point, model: nn.Module, mesh: DeviceMesh) -> None:
    """Divide the layers of a whole model among the workers of a mesh, in place.

    Args:
        point: its workload gives the plan.
        model: the same on all of them.
        mesh: of the workers, in one row.

    Raises:
        ValueError: the plan names no module of the model, or divides a parameter that modules
            share.
    """
    workload = point.workload
    plan_of = workload.tensor_parallel_plan
    if point.sequence_parallel:
        plan_of = workload.sequence_parallel_plan
    plan: dict[str, Any] = plan_of(model)
    count = len(list(model.parameters()))
    parallelize_module(model, mesh, plan)
    named = f"{type(workload).__name__}.{plan_of.__name__}"
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        raise ValueError(
            f"{named} names no layer of the model: {', '.join(plan)}; use names of "
            "model.named_modules()"
        )
    if len(list(model.parameters())) > count:
        raise ValueError(
            f"{named} divides a parameter that several modules share, which unties them; leave "
            "these modules out, or don't tie them"
        )


def by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Group parameters by their device mesh; plain ones are a group as well.

    Operations on a list of tensors take those of one mesh alone.
    """
    groups: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault(mesh, []).append(parameter)
    return list(groups.values())


def sum_partial_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum gradients of whole parameters that each worker has from its share of the tokens."""
    for parameter in parameters:
        gradient: Any = parameter.grad
        if isinstance(parameter, DTensor) and gradient is not None:
            parameter.grad = gradient.redistribute(placements=parameter.placements)


def squared_norm(
    parameters: Iterable[nn.Parameter], *, workers: int, device: torch.device
) -> torch.Tensor:
    """Squared norm of the whole model's gradients, for which all ranks exchange a number.

    Args:
        parameters: of this rank.
        workers: ranks that have a part of these parameters, or a copy of one.
        device: of the ranks' backend.
    """
    by_parts: dict[int, list[torch.Tensor]] = {}
    for parameter in parameters:
        gradient = own_part(parameter.grad)
        if gradient is not None:
            by_parts.setdefault(_parts(parameter), []).append(gradient)
    # A rank may have no gradient at all, and no type of its own.
    total = torch.zeros((), dtype=torch.float64, device=device)
    for parts, gradients in by_parts.items():
        total += nn.utils.get_total_norm(gradients).double().square() * (parts / workers)
    distributed.all_reduce(total)
    return total


def _parts(parameter: nn.Parameter) -> int:
    """Number of parts into which workers have divided a parameter; each worker has one."""
    if not isinstance(parameter, DTensor):
        return 1
    sizes = zip(parameter.device_mesh.shape, parameter.placements, strict=True)
    return math.prod(size for size, placement in sizes if not placement.is_replicate())
