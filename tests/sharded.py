"""Optimizers of workloads: one in shards, and one that is none of torch's."""

from __future__ import annotations

from typing import Any

import torch


class ShardedOptimizer:
    """Gives a workload an optimizer that has another one inside, of each worker's share."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        # Its import takes a while.
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=learning_rate)


class Descent:
    """An optimizer that is none of torch's; each worker may add noise of its own."""

    def __init__(self, parameters: Any, noise: float = 0.0) -> None:
        self.parameters, self.noise = list(parameters), noise

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            parameter.sub_(0.01 * parameter.grad + self.noise * torch.randn_like(parameter))

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
