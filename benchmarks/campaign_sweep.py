"""A sweep file for benchmarks/campaign.py: worlds of one and two workers, steps of a set time."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from dtsweep import Measure, Resources, Sweep

MARKS = "DTSWEEP_BENCHMARK_MARK"
"""Variable with the folder in which ranks say that they train."""

CONCURRENT = int(os.environ.get("DTSWEEP_BENCHMARK_CONCURRENT", "1"))

STEP_S = 0.02


@dataclass(frozen=True)
class Paced:
    """Steps that sleep, so that worlds of a small machine don't slow each other down."""

    def build(self) -> nn.Module:
        """Make the smallest model."""
        return nn.Linear(2, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        """Make the samples, in the time of a step."""
        say_where()
        time.sleep(STEP_S)
        return torch.ones(len(samples), 2, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Loss of a batch."""
        loss: torch.Tensor = model(batch).square().mean()
        return loss


def say_where() -> None:
    """Touch the mark of this rank's node; it holds the process of the node's raylet."""
    import ray

    mark = Path(os.environ[MARKS], ray.get_runtime_context().get_node_id())
    mark.write_text(str(os.getppid()))


sweep = Sweep(
    workload=Paced(),
    axes={"workers": [1, 2], "placement": ["strict_spread"], "micro_batch": [1, 2]},
    measure=Measure(
        repeats=2,
        half_width=None,
        min_seconds=2.5,
        max_steps=10**6,
        canary=False,
        nested=False,
    ),
    resources=Resources(
        cpus_per_worker=1,
        gpus_per_worker=0,
        concurrent=CONCURRENT,
        environment={MARKS: os.environ.get(MARKS, "")},
    ),
)
