"""How wide may a network of my own be before its steps get slow?"""

from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from dtsweep import Measure, Sweep


@dataclass(frozen=True)
class NextLetter:  # guesses a letter of Python's documentation from the 16 before it
    width: int = 64
    text = torch.tensor(list("".join(topics.values()).encode()))

    def build(self) -> nn.Module:
        last = nn.Linear(16 * self.width, 256)
        return nn.Sequential(nn.Embedding(256, self.width), nn.Flatten(), last)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        windows = self.text.unfold(0, 17, 16)
        return windows[torch.tensor(samples) % len(windows)].to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(batch[:, :-1]), batch[:, -1])


axes = {"workers": [1, 2], "workload.width": [16, 64, 256]}
sweep = Sweep(workload=NextLetter(), axes=axes, measure=Measure(max_seconds=5))
