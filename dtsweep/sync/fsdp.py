"""`fsdp`, `fsdp_grad`, `hsdp`: sharded training (ZeRO stages 3 and 2) by FSDP2."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

from dtsweep.sync.groups import mesh_of_nodes
from dtsweep.sync.sharded import ShardedMode


class Fsdp(ShardedMode):
    """Blocks free their parameters after forward, and gather them again in backward."""


class FsdpGrad(ShardedMode):
    """As `fsdp`, but parameters stay whole from forward to backward."""

    frees = False


class Hsdp(ShardedMode):
    """As `fsdp` inside each node; nodes have copies, whose gradients are summed across."""

    def mesh(self) -> DeviceMesh:
        """Nodes, and the workers of each."""
        return mesh_of_nodes(self._job)
