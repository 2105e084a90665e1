"""Does a step wait for its batches, and does a process that makes them ahead end that?

Images are drawn, blurred and scaled when they are asked for, as a data loader decodes them. That
takes about as long as the training step. With `loader_workers=1` a process of its own makes the
next batches meanwhile, on the second core.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dtsweep import Measure, Sweep


@dataclass(frozen=True)
class Images:
    side: int = 64

    def build(self) -> nn.Module:
        inside = ((self.side - 3) // 2) ** 2 * 28
        first = nn.Conv2d(3, 28, 5, stride=2)
        return nn.Sequential(first, nn.ReLU(), nn.Flatten(), nn.Linear(inside, 10))

    def dataset(self) -> "Drawn":
        return Drawn(self.side)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, classes = batch
        return nn.functional.cross_entropy(model(images), classes)


class Drawn(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images of ten classes, each as bright as its class."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        """Count the images."""
        return 10_000

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """Make an image and its class."""
        random = np.random.default_rng(number)
        image = random.normal(number % 10, 5, (3, self.side, self.side)).astype(np.float32)
        spectrum = np.fft.rfft2(image)
        spectrum[:, 8:-8] = 0  # a blur
        blurred = np.fft.irfft2(spectrum).astype(np.float32)
        return torch.from_numpy(blurred / 10), number % 10


sweep = Sweep(
    workload=Images(),
    axes={"workers": [1], "micro_batch": [32], "loader_workers": [None, 1]},
    measure=Measure(repeats=2, half_width=0.05, max_seconds=10),
)
