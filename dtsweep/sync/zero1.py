"""`zero1`: `ddp` with the optimizer's state divided among the ranks (ZeRO stage 1)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from dtsweep.sync.mode import MakeOptimizer
from dtsweep.sync.passes import make_contiguous, optimizer_name
from dtsweep.sync.wrapped import WrappedMode


class Zero1(WrappedMode):
    """Mode on torch's `ZeroRedundancyOptimizer`.

    Each rank owns whole parameters, updates them and broadcasts them.
    """

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Wrap the model, its parameters in the order of their indices."""
        # The optimizer lays them so; DDP takes their layout for that of gradients, and has to know
        # it from the start.
        make_contiguous(model)
        super().prepare(model, make_optimizer)

    def _make_optimizer(self, make_optimizer: MakeOptimizer) -> torch.optim.Optimizer:
        # Before its first step it has no state: given its share of the parameters, it is this
        # rank's.
        optimizer = make_optimizer(self._model.parameters())
        self.optimizer_class = optimizer_name(optimizer)
        trained = [
            group | {"params": [p for p in group["params"] if p.requires_grad]}
            for group in optimizer.param_groups
        ]
        kinds = {p.dtype: p for group in trained for p in group["params"]}
        if len(kinds) > 1:
            raise ValueError(
                f"zero1 needs trained parameters of one type, not {' and '.join(map(str, kinds))}; "
                "use sync=ddp"
            )
        # As views of one tensor per owner, so that a step sends one message for each, not one for
        # each parameter.
        self._sharded = ZeroRedundancyOptimizer(
            trained,
            functools.partial(_with_share, optimizer),  # type: ignore[arg-type]  # called as a class would be
            parameters_as_bucket_view=True,
        )
        return self._sharded

    def _take_step(self, without: Collection[str]) -> None:
        if "parameters" in without:
            self._sharded._local_step()
        else:
            self._sharded.step()

    def checkpoint_parts(self) -> None:
        """None: each rank has a part of the optimizer's state, under the whole one's names."""
        return

    def expected_bytes(self) -> float | None:
        """An all-reduce of all gradients, and each owner's parameters to all."""
        gradients = super().expected_bytes()
        if gradients is None:
            return None
        ranks = self._job.point.workers
        owned = [p for group in self._sharded.param_groups for p in group["params"]]
        owned_bytes: int = sum(p.nbytes for p in owned)
        return gradients + (ranks - 1) / ranks * owned_bytes

    def exchange_alone(self) -> int:
        """All-reduce the buckets, then send the parameters as the optimizer does."""
        super().exchange_alone()
        self._sharded._sync_params()  # type: ignore[attr-defined]  # missing in torch's stub
        return 1


def _with_share(
    optimizer: torch.optim.Optimizer, shares: Sequence[Mapping[str, Any]], **_: Any
) -> torch.optim.Optimizer:
    """The optimizer with a part of the parameters in each of its groups, or none."""
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        group["params"] = share["params"]
    return optimizer
