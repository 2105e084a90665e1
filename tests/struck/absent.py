"""A sweep whose ranks can't import what it needs, while the mark is missing; and can't find each other, on request."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dtsweep import Measure, Sweep

if "RANK" in os.environ and not Path(os.environ["DTSWEEP_TEST_MARK"], "installed").exists():
    import no_such_package.layers  # noqa: F401


@dataclass(frozen=True)
class Absent:
    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()


sweep = Sweep(
    workload=Absent(),
    axes={"workers": [2, 1], "micro_batch": [1, 2, 4], "env.GLOO_SOCKET_IFNAME": ["lo", "absent0"]},
    measure=Measure(half_width=None, min_seconds=0, min_steps=5),
)
