"""Modes as a PyTorch user writes them by hand: what `fidelity.py` holds dtsweep's loop against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dtsweep import Point


def ddp_by_hand(
    model: nn.Module, point: Point, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """DDP, and plain SGD."""
    wrapped = wrapped_by_hand(model, device)
    return wrapped, torch.optim.SGD(wrapped.parameters(), lr=point.learning_rate)


def zero1_by_hand(
    model: nn.Module, point: Point, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """DDP, and AdamW in shards, whose parameters travel in one message for each rank."""
    wrapped = wrapped_by_hand(model, device)
    return wrapped, ZeroRedundancyOptimizer(
        wrapped.parameters(),
        torch.optim.AdamW,
        parameters_as_bucket_view=True,
        lr=point.learning_rate,
    )


def fsdp_by_hand(
    model: nn.Module, point: Point, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Block by block as torch's tutorial has it, and AdamW on the shards."""
    mesh = init_device_mesh(device.type, (point.workers,))
    blocks: Any = model.get_submodule("blocks")
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=point.learning_rate)


def wrapped_by_hand(model: nn.Module, device: torch.device) -> DistributedDataParallel:
    """Have DDP average the gradients."""
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


BY_HAND: Mapping[
    str, Callable[[nn.Module, Point, torch.device], tuple[nn.Module, torch.optim.Optimizer]]
] = {
    "ddp": ddp_by_hand,
    "zero1": zero1_by_hand,
    "fsdp": fsdp_by_hand,
}
"""By the sync mode: the same with torch alone."""
