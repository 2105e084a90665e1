"""A small problem for modes to train on, and what plain PyTorch makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from dtsweep.sweep.modes import mode_of
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import batches_of_steps, loss_in_precision

CPU = torch.device("cpu")
PERIOD = 3
"""Steps between exchanges, of modes that have a period."""
STEPS = 2 * PERIOD
LEARNING_RATE = 0.05
MOMENTUM = 0.9

Weights = NDArray[np.float64]
"""(parameters,) values of all parameters of a model."""


@dataclass(frozen=True)
class Regression:
    """A small network in float64, on samples that are made from their numbers."""

    def build(self) -> nn.Module:
        """Two layers."""
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """(samples, 4): three inputs and the target."""
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        return torch.stack(
            [torch.sin(numbers), torch.cos(2 * numbers), numbers % 5 / 5, numbers % 3], dim=1
        )

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Mean squared error."""
        wrong: Tensor = model(batch[:, :3]).squeeze(1) - batch[:, 3]
        return wrong.square().mean()


def point_of(mode: str, *, workers: int, case: str = "plain") -> Point:
    """Point of a mode in a case of `training`: with `accumulation` a step has three passes."""
    reads = mode_of(mode).reads
    values: dict[str, Any] = {"sync_period": PERIOD, "node_size": max(1, workers // 2)}
    values = {name: value for name, value in values.items() if name in reads}
    values["accumulation"] = 3 if case == "accumulation" else 1
    return Point(
        workers=workers,
        micro_batch=2,
        sync=mode,
        optimizer="momentum",
        learning_rate=LEARNING_RATE,
        workload=Regression(),
        **values,
    )


def job_of(point: Point, rank: int) -> Job:
    """The point as a rank sees it."""
    return Job(point=point, rank=rank, device=CPU, loss=loss_in_precision(point, CPU))


def model_of(rank: int) -> nn.Module:
    """A freshly built model, another one on each rank."""
    torch.manual_seed(rank)
    return Regression().build()


def weights(model: nn.Module) -> Weights:
    """All parameters, whole; called on all ranks, which gather them where they are in shards."""
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return nn.utils.parameters_to_vector(whole).detach().numpy().copy()


def plain(point: Point, steps: int) -> Weights:
    """Train in one process with the whole batch, the way a textbook does.

    The optimizer is new after each sync period if the mode declares that.
    """
    model, size = model_of(0), point.global_batch
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for step in range(steps):
        since = step - point.first_steps
        if point.mode.renews_optimizer(vars(point)) and since > 0 and since % point.period == 0:
            optimizer.state.clear()
        optimizer.zero_grad()
        batch = Regression().batch(range(step * size, (step + 1) * size), CPU)
        Regression().loss(model, batch).backward()
        optimizer.step()
    return weights(model)


def alone(point: Point, rank: int) -> Weights:
    """Train a worker on its own share in all steps, without the others."""
    model, batches = model_of(0), batches_of_steps(job_of(point, rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for batch in next(batches):
            Regression().loss(model, batch).backward()
        optimizer.step()
    return weights(model)


def same(one: Weights, other: Weights) -> bool:
    """True if weights are equal but for rounding."""
    return bool(np.allclose(one, other, rtol=0, atol=1e-9))


def distance(one: Weights, expected: Weights) -> float:
    """Distance from the expected weights, as a share of the way from the start to these."""
    if same(one, expected):
        return 0.0
    way = np.linalg.norm(expected - weights(model_of(0)))
    return float(np.linalg.norm(one - expected) / way)
