"""Policies of FSDP2: the type of gathers, what is kept after forward, and where shards are.

They are the axes `shard_precision`, `reshard` and `offload`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy
from torch.distributed.fsdp._fully_shard import _fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import HSDPMeshInfo

from dtsweep.sync.groups import mesh_of_nodes
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


def node_mesh(job: Job) -> DeviceMesh:
    """Mesh of the nodes inside which blocks are gathered again.

    Raises:
        ValueError: there is one node, or each worker has its own.
    """
    mesh = mesh_of_nodes(job)
    nodes, workers = mesh.shape
    if nodes == 1:
        raise ValueError("reshard=node needs several nodes; leave reshard out, or set node_size")
    if workers == 1:
        raise ValueError(
            "reshard=node needs several workers on a node; use sync=fsdp_grad, or set node_size"
        )
    return mesh


@contextlib.contextmanager
def kept_in(mesh: DeviceMesh | None) -> Iterator[None]:
    """Let `fully_shard` use this mesh after forward, where it is given a number of ranks.

    Torch makes new process groups for each block, all with the same ranks.
    """
    if mesh is None:
        yield
        return
    info = HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
    torchs: Any = _fully_shard
    makes_mesh = torchs._get_post_forward_mesh_info
    torchs._get_post_forward_mesh_info = lambda *_: info
    try:
        yield
    finally:
        torchs._get_post_forward_mesh_info = makes_mesh


def param_groups_of(block: nn.Module) -> Iterator[Any]:
    """FSDP's groups of parameters of a module, which torch has no public name for."""
    if isinstance(block, FSDPModule):
        state = block._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            # Before torch 2.13 a module had one, or None if all parameters are in its blocks.
            groups = filter(None, [state._fsdp_param_group])
        yield from groups
