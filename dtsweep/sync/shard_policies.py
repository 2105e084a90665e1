"""Policies of FSDP2, the axes `shard_precision` and `offload`: type of gathers, place of shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy

from dtsweep.sync.mode import Job

_SHARD_TYPES = {"bf16": torch.bfloat16}
"""Types of gathered parameters, by the values of `shard_precision`."""


def policies(job: Job) -> dict[str, Any]:
    """Arguments of `fully_shard` for the point's types and the place of its shards."""
    point = job.point
    arguments: dict[str, Any] = {}
    if point.shard_precision is not None:
        arguments["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=_SHARD_TYPES[point.shard_precision], reduce_dtype=torch.float32
        )
    if point.offload:
        # Memory can be pinned for a GPU alone.
        is_pinned = job.device.type != "cpu"
        arguments["offload_policy"] = CPUOffloadPolicy(pin_memory=is_pinned)
    return arguments


def whole_bytes(model: nn.Module, job: Job) -> tuple[int, int]:
    """Bytes of all parameters as they are gathered, and of all gradients before they are reduced.

    Args:
        model: in shards, each of which has the size of its whole parameter.
        job: the trial.
    """
    parameters_bytes = gradients_bytes = 0
    for parameter in model.parameters():
        gathered_type = parameter.dtype
        if job.point.shard_precision is not None and parameter.is_floating_point():
            gathered_type = _SHARD_TYPES[job.point.shard_precision]
        parameters_bytes += parameter.numel() * gathered_type.itemsize
        if parameter.requires_grad:
            gradients_bytes += parameter.numel() * parameter.element_size()
    return parameters_bytes, gradients_bytes


def param_groups_of(block: nn.Module | FSDPModule) -> Iterator[Any]:
    """FSDP's groups of parameters of a module, which torch has no public name for."""
    if isinstance(block, FSDPModule):
        state = block._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            # Before torch 2.13 a module had one, or None if all parameters are in its blocks.
            groups = filter(None, [state._fsdp_param_group])
        yield from groups
