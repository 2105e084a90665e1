"""A small network on random samples."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Mlp:
    """Regression by layers of one width."""

    width: int = 256
    layers: int = 4

    def build(self) -> nn.Module:
        sides = [self.width] * self.layers
        layers = [nn.Sequential(nn.Linear(side, side), nn.ReLU()) for side in sides]
        return nn.Sequential(*layers, nn.Linear(self.width, 1))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        random = torch.Generator().manual_seed(samples.start)
        return torch.randn(len(samples), self.width, generator=random).to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return (model(batch).squeeze(1) - batch.mean(dim=1)).square().mean()
