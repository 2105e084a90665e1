"""Device meshes: made once for each shape and world, because each new group leaks threads."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

_meshes: dict[tuple[str, ...], DeviceMesh] = {}
"""By shape and names of the dimensions."""


def mesh_of(device: torch.device, shape: tuple[int, ...], names: tuple[str, ...]) -> DeviceMesh:
    """The mesh of all ranks with this shape, in the order of ranks; called on all of them."""
    key = (*map(str, shape), *names)
    if key not in _meshes:
        _meshes[key] = init_device_mesh(device.type, shape, mesh_dim_names=names)
        # A new group has torch's own timeout, not that of the world.
        world = distributed_c10d._get_default_group()._get_backend(device)
        wait_up_to(world.options._timeout)
    return _meshes[key]


def forget_meshes() -> None:
    """Release all meshes, before their world ends."""
    _meshes.clear()


def all_groups() -> list[distributed.ProcessGroup]:
    """Every process group that this rank is in."""
    return list(distributed_c10d._world.pg_map)


def wait_up_to(timeout: timedelta) -> None:
    """Give each collective of every group so long."""
    for group in all_groups():
        distributed_c10d._set_pg_timeout(timeout, group)
