"""Problems of `efficiency`: a convex one whose optimum is known, and a small language model.

Each is a workload of dtsweep with a seed, which draws other samples, and with a held-out loss.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Protocol

import torch
from torch import Tensor, nn

from dtsweep.workloads.gpt import Gpt, text_windows

WORKERS, MICRO_BATCH = 4, 4

STEPS = 128
"""Steps of `ddp` to the loss that the others have to reach."""

LIMIT = 3
"""Samples of a run at most, as a multiple of those in `STEPS` steps."""

SAMPLES = STEPS * WORKERS * MICRO_BATCH
"""Samples in `STEPS` steps of `ddp`."""

AVAILABLE = 2 * LIMIT * SAMPLES
"""Samples that a run can draw: modes that drop gradients draw more than they train on."""

CPU = torch.device("cpu")


class Task(Protocol):
    """A workload with a held-out loss."""

    def build(self) -> nn.Module:
        """Make the model."""

    def held_out_loss(self, model: nn.Module) -> float:
        """Loss on samples that no run trains on."""


class Make(Protocol):
    """A class of tasks."""

    def __call__(self, *, seed: int) -> Task:
        """Make the task that draws with this seed."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task, its optimizer, and the learning rates that each variant chooses from."""

    task: Make
    optimizer: str
    learning_rates: Sequence[float]
    """The first ones to try, each twice the one before."""

    clip_norm: float | None = None
    """Norm that gradients are clipped to; None does not clip."""


INPUTS, OUTPUTS = 32, 16


@dataclass(frozen=True)
class LinearRegression:
    """Least squares with 16 outputs of 32 inputs, whose variances fall from 1 to 1/32, and noise.

    The noise has variance 1 in each output. No sample is used twice.
    """

    seed: int = 0
    """Seed of the samples; all have one truth."""

    def build(self) -> nn.Module:
        """Make the matrix, zero at first."""
        model = nn.Linear(INPUTS, OUTPUTS, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """(samples, 48): inputs, then outputs."""
        return _regression_samples(self.seed)[samples.start : samples.stop].to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Half of the squared error, summed over outputs."""
        inputs, outputs = batch.split([INPUTS, OUTPUTS], dim=1)
        errors: Tensor = model(inputs) - outputs
        return errors.square().sum(dim=1).mean() / 2

    def held_out_loss(self, model: nn.Module) -> float:
        """Expected loss above that of the truth, which is the optimum."""
        (weight,) = model.parameters()
        wrong = (weight.detach().double() - _truth()).square() * _variances()
        return float(wrong.sum()) / 2


def _variances() -> Tensor:
    return 1 / torch.arange(1, INPUTS + 1, dtype=torch.float64)


def _truth() -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(OUTPUTS, INPUTS, generator=random, dtype=torch.float64)


@functools.lru_cache(maxsize=2)
def _regression_samples(seed: int) -> Tensor:
    random = torch.Generator().manual_seed(1000 + seed)
    inputs = torch.randn(AVAILABLE, INPUTS, generator=random, dtype=torch.float64)
    inputs *= _variances().sqrt()
    noise = torch.randn(AVAILABLE, OUTPUTS, generator=random, dtype=torch.float64)
    return torch.cat([inputs, inputs @ _truth().T + noise], dim=1).float()


@dataclass(frozen=True)
class SmallGpt(Gpt):
    """`Gpt` with one block of width 32 on 32 tokens of "pydoc", whose last tenth is held out.

    No sample is used twice.
    """

    layers: int = 1
    width: int = 32
    sequence: int = 32
    heads: int = 2
    data: str = "pydoc"
    seed: int = 0
    """Number of the part of the text's windows that a run trains on."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Tokens (samples, 33) of the text that is not held out."""
        first = self.seed * AVAILABLE
        numbers = range(first + samples.start, first + samples.stop)
        return text_windows(_text()[0], numbers, length=self.sequence + 1).to(device)

    @torch.no_grad()
    def held_out_loss(self, model: nn.Module) -> float:
        """Mean cross entropy of 4,096 tokens that are held out, in nats."""
        held_out = text_windows(_text()[1], range(128), length=self.sequence + 1)
        return float(self.loss(model, held_out))


@functools.cache
def _text() -> tuple[Tensor, Tensor]:
    """Bytes to train on, and bytes that are held out."""
    text = torch.frombuffer(bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8)
    split = len(text) * 9 // 10
    return text[:split], text[split:]


PROBLEMS: Mapping[str, Problem] = {
    "regression": Problem(
        task=LinearRegression,
        optimizer="sgd",
        learning_rates=(0.1, 0.2, 0.4),
    ),
    "gpt": Problem(
        task=SmallGpt,
        optimizer="adamw",
        learning_rates=(0.002, 0.004, 0.008),
        # Without it the loss of some seeds stands still for a while.
        clip_norm=1.0,
    ),
}
