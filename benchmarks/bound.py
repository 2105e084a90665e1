"""A sweep file for benchmarks/bottlenecks.py: workloads that are bound in one way each."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Point, Resources, Sweep

TWO_WORKERS = ("exchange", "straggler")
"""What needs another worker."""

KINDS = ("compute", "memory", "update", "input", "host", *TWO_WORKERS)


@dataclass(frozen=True)
class Bound:
    """One workload for each thing that can limit a step.

    `update` is limited by memory, too: by its optimizer.
    """

    kind: str = "compute"

    def build(self) -> nn.Module:
        """Make the model of the kind."""
        match self.kind:
            case "compute":
                return nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
            case "update":
                return nn.Sequential(nn.Embedding(100_000, 64), nn.Linear(64, 16))
            case "host":
                return nn.Sequential(
                    *(layer for _ in range(100) for layer in (nn.Linear(8, 8), nn.Tanh()))
                )
            case "exchange":
                return nn.Sequential(*(nn.Linear(1536, 1536, bias=False) for _ in range(2)))
            case "memory":
                return nn.PReLU(1)
            case _:
                return nn.Linear(512, 512)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Give numbers that are quick to make, unless that is what is to take long."""
        if self.kind == "update":
            return torch.tensor(samples, device=device)[:, None] * 97 % 100_000
        width = {"compute": 1024, "memory": 2**18, "host": 8, "exchange": 1536}.get(self.kind, 512)
        values = torch.full((len(samples), width), 0.01)
        for _ in range(400 * (self.kind == "input")):
            values = values.roll(1, 1).cos()
        return values.to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Give the mean square of what the model makes of the batch."""
        if self.kind == "straggler" and distributed.get_rank() == 1:
            # 0.02 s of its own, whatever works beside it.
            end = time.thread_time() + 0.02
            while time.thread_time() < end:
                batch = batch + 0.0
        values: Tensor = model(batch)
        for _ in range(6 * (self.kind == "memory")):
            values = torch.relu(model(values) + batch)
        return values.square().mean()


def skip(point: Point) -> str | None:
    """Let each kind have the workers that it needs."""
    needed = 1 + (point.workload.kind in TWO_WORKERS)
    return (
        None if point.workers == needed else f"{point.workload.kind} is tried with {needed} of them"
    )


def micro_batch(point: Point) -> int:
    """Number of samples of each kind."""
    return {"compute": 256, "memory": 4, "exchange": 1}.get(point.workload.kind, 16)


sweep = Sweep(
    workload=Bound(),
    axes={
        "workload.kind": list(KINDS),
        "workers": [1, 2],
        "micro_batch": micro_batch,
    },
    skip=skip,
    measure=Measure(repeats=3, max_seconds=8, canary=False),
    resources=Resources(cpus_per_worker=1),
)
