"""A sweep file for benchmarks/lies.py: a network that can do something else than its row says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dtsweep import Measure, Sweep

UNSEEDED = torch.Generator()


@dataclass(frozen=True)
class Liar:
    """Fits a small network; `lie` says what it does otherwise than it should."""

    lie: str = ""
    width: int = 64

    def build(self) -> nn.Module:
        """Make two layers."""
        return nn.Sequential(nn.Linear(32, self.width), nn.ReLU(), nn.Linear(self.width, 8))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Give sines of the sample's number."""
        if self.lie == "ends" and samples.start > 1000:
            samples = range(1)
        numbers = (
            torch.arange(64) if self.lie == "size" else torch.arange(samples.start, samples.stop)
        )
        if self.lie == "whims":
            return torch.rand(len(numbers), 32, generator=UNSEEDED).to(device)
        return torch.sin(numbers[:, None] * torch.arange(1, 33)).to(device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        """Give the mean square of the difference to the first of them."""
        inner = getattr(model, "module", model)
        if self.lie == "module":
            answer: Tensor = inner(batch)
        elif self.lie == "inside":
            answer = inner[2](inner[1](inner[0](batch)))
        else:
            answer = model(batch)
        return (answer - batch[:, :8]).square().mean()

    @property
    def flops_per_sample(self) -> float | None:
        """A thousand times what a pass takes, where the lie is that."""
        return 6e3 * (32 * self.width + self.width * 8) if self.lie == "flops" else None


sweep = Sweep(
    workload=Liar(),
    axes={"workers": [1], "micro_batch": [32]},
    measure=Measure(repeats=1, half_width=None, min_seconds=0.5, max_seconds=1),
)
