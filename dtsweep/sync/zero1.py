"""`zero1`: as `ddp`, but each rank keeps the optimizer's state of a part of the parameters (ZeRO stage 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from dtsweep.sync.mode import MakeOptimizer
from dtsweep.sync.wrapped import WrappedMode


class Zero1(WrappedMode):
    """torch's `ZeroRedundancyOptimizer`: whole parameters are dealt out; who updates them sends them to the others."""

    def _make_optimizer(self, make_optimizer: MakeOptimizer) -> torch.optim.Optimizer:
        # As views of one tensor per owner, so that a step sends one message for each, not one for each parameter.
        self._sharded = ZeroRedundancyOptimizer(
            self._model.parameters(), _of_groups(make_optimizer), parameters_as_bucket_view=True
        )
        self.optimizer_class = type(self._sharded.optim).__name__
        return self._sharded

    def _take_step(self, exchange: bool) -> None:
        if exchange:
            self._sharded.step()
        else:
            self._sharded._local_step()

    def exchange_alone(self) -> int:
        """All-reduce the buckets, then send the parameters as the optimizer does."""
        super().exchange_alone()
        self._sharded._sync_params()  # type: ignore[attr-defined]  # missing in torch's stub
        return 1


def _of_groups(make_optimizer: MakeOptimizer) -> Any:
    """From the parameter groups of a rank, one without parameters too, to their optimizer."""

    def make(groups: Iterable[Mapping[str, Any]], **_: Any) -> torch.optim.Optimizer:
        mine: list[nn.Parameter] = [parameter for group in groups for parameter in group["params"]]
        return make_optimizer(mine or groups)  # type: ignore[arg-type]  # a list without parameters torch refuses

    return make
