"""How does adversarial training, two models with an optimizer each, scale to a second worker?

`train_step` takes the whole step, so the workload needs no `loss`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dtsweep import Measure, OwnMode, Sweep


@dataclass(frozen=True)
class Gan:
    """A generator of points on a ring, and its discriminator."""

    width: int = 512
    noise: int = 16

    # Each worker draws noise of its own, and the mean over workers is that over all samples.
    own_mode = OwnMode(semantics="exact")

    def build(self) -> Any:
        """Both models in one."""
        from torch import nn

        def network(*sizes: int) -> nn.Module:
            layers: list[nn.Module] = []
            for inputs, outputs in itertools.pairwise(sizes):
                layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2)]
            return nn.Sequential(*layers[:-1])

        return nn.ModuleDict(
            {
                "generator": network(self.noise, self.width, self.width, 2),
                "discriminator": network(2, self.width, self.width, 1),
            }
        )

    def batch(self, samples: range, device: Any) -> Any:
        """Points on the ring, and the noise for as many others."""
        import torch

        numbers = torch.arange(samples.start, samples.stop, device=device, dtype=torch.float32)
        ring = torch.stack([torch.sin(numbers), torch.cos(numbers)], dim=1)
        steps = torch.arange(1, self.noise + 1, device=device)
        return ring, torch.sin(numbers[:, None] * steps * 1.7)

    def prepare(self, model: Any, job: Any) -> Any:
        """Average the gradients of each model over the workers."""
        import torch
        from torch.nn.parallel import DistributedDataParallel

        for name in list(model):
            model[name] = DistributedDataParallel(model[name])
        rate = job.point.learning_rate
        return model, {name: torch.optim.Adam(model[name].parameters(), rate) for name in model}

    def train_step(
        self, model: Any, optimizer: Any, batches: Iterator[Any], mark: Callable[[str], None]
    ) -> Any:
        """A step of the discriminator, then one of the generator; its loss."""
        from torch.nn.functional import softplus

        for ring, noise in batches:
            mark("data")
            generated = model["generator"](noise)
            judged = model["discriminator"]
            loss = (softplus(-judged(ring)) + softplus(judged(generated.detach()))).mean()
            loss.backward()
            optimizer["discriminator"].step()
            optimizer["discriminator"].zero_grad()
            loss = softplus(-judged(generated)).mean()
            loss.backward()
            optimizer["generator"].step()
            optimizer["generator"].zero_grad()
            optimizer["discriminator"].zero_grad()
        return loss


sweep = Sweep(
    workload=Gan(),
    axes={"workers": [1, 2], "micro_batch": [64, 256, 1024], "learning_rate": [0.001]},
    measure=Measure(repeats=1, max_seconds=10),
)
