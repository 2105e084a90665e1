"""A sweep file for the checklists of GPUs: a small decoder that can also go wrong in known ways."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Sweep, workloads

PRODUCTS = 8
"""Matrix products of 4096 × 4096 that a slow rank computes in addition, per pass."""


@dataclass(frozen=True)
class Model(workloads.Gpt):
    """A decoder, and what else one of its ranks does."""

    kind: str = "plain"
    """Name of the fault.

    `plain` has none. `copies` sends each batch through the host, which waits for the device.
    `asserts` looks up a token that does not exist. `dies` and `stops` send signals to their own
    process. `slow` computes more than other ranks.
    """

    on_rank: int = 0
    """The rank that does so; `copies` is of all ranks."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Give tokens (samples, sequence + 1), int64."""
        tokens = super().batch(samples, device)
        if self.kind == "copies":
            return tokens.cpu().to(device)
        return tokens

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Give the mean cross entropy, after the fault of this rank."""
        if self.kind not in ("plain", "copies") and distributed.get_rank() == self.on_rank:
            batch = self._with_fault(batch)
        return super().loss(model, batch)

    def _with_fault(self, batch: Tensor) -> Tensor:
        match self.kind:
            case "asserts":
                return batch + self.vocabulary
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "slow":
                factor = torch.full((4096, 4096), 1 / 4096, device=batch.device)
                for _ in range(PRODUCTS):
                    factor = factor @ factor
        return batch


sweep = Sweep(
    workload=Model(layers=2, width=128, sequence=64),
    axes={"workers": [1], "micro_batch": [16], "sync": ["ddp"]},
    measure=Measure(repeats=1, half_width=0.01, min_seconds=2, max_seconds=8, canary=False),
)
