"""Base of modes whose parameters, gradients and optimizer state are in shards, by FSDP2."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import StepClock
from dtsweep.sync.block_order import BlockOrder
from dtsweep.sync.buckets import trainable_parameters
from dtsweep.sync.clipping import clip, clip_alone, clip_offloaded
from dtsweep.sync.groups import mesh_of_all
from dtsweep.sync.loss_scale import Updates
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.model_blocks import blocks_of, described
from dtsweep.sync.passes import make_contiguous, optimizer_name, passes, share_weights
from dtsweep.sync.shard_policies import param_groups_of, policies, whole_bytes

_FREED = (
    "backward needs parameters that were freed after forward, for example of a block that returns "
    "an object of its own class, or with create_graph=True; use sync=fsdp_grad"
)
"""Message where a block's parameters are used after they were freed."""

_OUTSIDE = (
    "the loss uses a parameter outside the forward of its module, where FSDP has it in shards, as "
    "functional_call or a module's method do; call model(...) itself, or use sync=ddp"
)
"""Message where a parameter in shards meets a plain tensor."""


class ShardedMode(SyncMode):
    """Mode on torch's `fully_shard`: a block's parameters are whole only while it computes."""

    frees = True
    """True if blocks free parameters after forward, where the point has no other `reshard`."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._without: frozenset[str] = frozenset()
        self._order: BlockOrder | None = None

    @property
    def reshards(self) -> bool:
        """True if a block gathers its parameters again in backward."""
        return self.frees and self._job.point.reshard != "never"

    def mesh(self) -> DeviceMesh:
        """Mesh of the ranks that share the shards; rows of a second dimension are replicas."""
        return mesh_of_all(self._job)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Shard the blocks, and what is left of the model by itself."""
        _refuse_unshardable(model)
        make_contiguous(model)
        share_weights(model)
        blocks = blocks_of(self._job.point.workload, model)
        _refuse_mixed_types(model, blocks)
        # In words while they are what the workload made: `fully_shard` gives them classes of its
        # own.
        named = described(blocks)
        names = {module: name for name, module in model.named_modules()}
        model, blocks = self.divide(model, blocks)
        root = self.shard(model, blocks)
        self._model = model
        self._sharded = [module for module in (*blocks, model) if isinstance(module, FSDPModule)]
        if root is not None and hasattr(root, "set_reduce_scatter_unused_params"):
            # Missing in torch before 2.13. A parameter may be used on another rank.
            root.set_reduce_scatter_unused_params(reduce_scatter_unused_params=True)
        if root is not None and self._job.point.workers > 1:
            of_blocks = {names[block]: block for block in blocks}
            self._order = BlockOrder(
                {**of_blocks, "the rest of the model": model},
                gathered_again=of_blocks if self.reshards else (),
                rank=self._job.rank,
                ranks=self._job.point.workers,
            )
            self._job = replace(self._job, loss=self._order.followed(self._job.loss))
        self._optimizer = make_optimizer(self.optimized(model))
        self._parameters = trainable_parameters(model)
        self.updates = Updates(self._job.scaler, self._parameters)
        self.optimizer_class = optimizer_name(self._optimizer)
        self.blocks = named

    def divide(
        self, model: nn.Module, blocks: list[nn.Module]
    ) -> tuple[nn.Module, list[nn.Module]]:
        """Keep this worker's part of the model and of its blocks; by default all of it."""
        return model, blocks

    def optimized(self, model: nn.Module) -> Iterable[Any]:
        """Parameters as the optimizer takes them: one by one, or groups of them."""
        return model.parameters()

    def shard(self, model: nn.Module, blocks: Sequence[nn.Module]) -> FSDPModule | None:
        """Shard the blocks and the rest of the model, which comes back."""
        mesh, arguments = self.mesh(), policies(self._job)
        for block in blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=self.reshards, **arguments)
        # What the model's own forward needs is gathered first and let go of last.
        return fully_shard(model, mesh=mesh, reshard_after_forward=False, **arguments)

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass, each with gathers and a reduce-scatter behind its work; update the own shards."""
        if self._without != frozenset(without):
            self._switch(frozenset(without))
        exchange = "gradients" not in without
        try:
            loss = passes(self._job, self._model, batches, clock, exchange=exchange)
            if self._order is not None:
                self._order.end_pass()
        except RuntimeError as error:
            if self.reshards and "storage of size 0" in str(error):
                raise RuntimeError(_FREED) from error
            if "mixed torch.Tensor and DTensor" in str(error):
                raise RuntimeError(_OUTSIDE) from error
            raise
        if not exchange:
            self._give_shards()
        self.update(clock, exchange=exchange)
        return loss

    def update(self, clock: StepClock, *, exchange: bool) -> None:
        """Clip gradients that were exchanged, and update this rank's shards."""
        self.updates.unscale()
        self.before_update()
        if exchange:
            self.clip()
        self.updates.make(self._optimizer.step)
        self._optimizer.zero_grad()
        # Also of parameters that the optimizer does not have.
        self._model.zero_grad()
        clock.mark("optimizer")

    def checkpoint_parts(self) -> tuple[nn.Module, torch.optim.Optimizer] | None:
        """The sharded model, and the optimizer of its shards."""
        return self._model, self._optimizer

    def bytes_without_exchange(self) -> int:
        """Whole gradients, and whole parameters unless other steps have them as well."""
        parameters_bytes, gradients_bytes = whole_bytes(self._model, self._job)
        if self.reshards:
            return parameters_bytes + gradients_bytes
        return gradients_bytes

    def _switch(self, without: frozenset[str]) -> None:
        """Leave these parts of the exchange out from the next pass on, and no others.

        Without `parameters` all of them stay whole, which saves the gathers.
        """
        self._without = without
        if self._order is not None:
            self._order.is_followed = not without
        shards = "parameters" not in without
        *blocks, root = self._sharded
        root.set_requires_gradient_sync("gradients" not in without)
        root.set_reshard_after_backward(shards)
        for module in blocks:
            module.set_reshard_after_forward(shards and self.reshards, recurse=False)
        for module in self._sharded:
            if shards:
                module.reshard()

    def clip(self) -> None:
        """Clip the gradients by the norm of whole ones."""
        limit = self._job.point.clip_norm
        if limit is None or not self._job.point.offload:
            clip(self._parameters, limit)
            return
        mesh = self.mesh()
        gradients = [parameter.grad for parameter in self._parameters]
        clip_offloaded(
            [gradient.to_local() for gradient in gradients if isinstance(gradient, DTensor)],
            limit,
            group=mesh.get_group(mesh.ndim - 1),
            device=self._job.device,
        )

    def _give_shards(self) -> None:
        """Give the optimizer zero gradients of this rank's shards, which need no exchange.

        They are clipped as others are, so that the update takes as long.
        """
        for parameter in self._model.parameters():
            parameter.grad = None
        for module in self._sharded:
            for group in param_groups_of(module):
                for parameter in group.fsdp_params:
                    # In another type than that of the parameter.
                    parameter.unsharded_accumulated_grad = None
        gradients: list[Any] = [torch.zeros_like(parameter) for parameter in self._parameters]
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        clip_alone([gradient.to_local() for gradient in gradients], self._job.point.clip_norm)


def _refuse_unshardable(model: nn.Module) -> None:
    """Refuse what FSDP2 can't shard, by its name.

    Raises:
        ValueError: names the parameter or module, and the way out.
    """
    for name, parameter in model.named_parameters():
        if not parameter.numel():
            raise ValueError(
                f"the parameter {name} has no elements, which FSDP can't shard; leave it out of "
                "the model, or use sync=ddp"
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ValueError(
                f"the parameter {name} has a hook on its gradient, which FSDP loses with the "
                "parameter that it replaces; use sync=ddp, or a hook of a module"
            )
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            raise ValueError(
                f"{name} rewrites its parameters in forward (max_norm), which FSDP loses with the "
                "gathered copy; leave max_norm out"
            )
        if (
            isinstance(module, nn.Embedding | nn.EmbeddingBag)
            and module.sparse
            and module.weight.requires_grad
        ):
            raise ValueError(
                f"{name} has sparse gradients, which FSDP can't exchange; leave sparse=True out, "
                "or use sync=ddp"
            )


def _refuse_mixed_types(model: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Refuse a block, or the rest of the model, whose trained parameters are of several types.

    Raises:
        ValueError: names two of them, and the way out.
    """
    block_of = {id(p): number for number, block in enumerate(blocks) for p in block.parameters()}
    names: dict[int | None, dict[torch.dtype, str]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            of_block = names.setdefault(block_of.get(id(parameter)), {})
            of_block.setdefault(parameter.dtype, name)
    for of_block in names.values():
        if len(of_block) > 1:
            found = " and ".join(f"{name} ({kind})" for kind, name in of_block.items())
            raise ValueError(
                f"{found} are in one FSDP block, which needs one type; give the workload other "
                "blocks(model), or use sync=ddp"
            )
