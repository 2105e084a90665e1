"""A sweep whose ranks lack a package, or an interface."""

from dataclasses import dataclass

import needs
import torch
from torch import nn

from dtsweep import Measure, Sweep


@dataclass(frozen=True)
class Absent:
    def build(self) -> nn.Module:
        return needs.layer()

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()


sweep = Sweep(
    workload=Absent(),
    axes={"workers": [2, 1], "micro_batch": [1, 2, 4], "env.GLOO_SOCKET_IFNAME": ["lo"]},
    measure=Measure(repeats=1, half_width=None, min_seconds=0, min_steps=5),
)
