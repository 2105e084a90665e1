"""An optimizer of torch's that has another one inside, of each worker's share of the parameters."""

from __future__ import annotations

from typing import Any

import torch


class ShardedOptimizer:
    """Gives a workload that optimizer."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        # Its import takes a while.
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=learning_rate)
