"""A sweep on two nodes of a cluster that others use; its first trial may wait to lose one."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed, nn

from dtsweep import Measure, Resources, Sweep


def wait_to_be_killed() -> None:
    """Say once which process is this node's, and wait until it is killed."""
    mark = Path(os.environ["DTSWEEP_TEST_MARK"], "first")
    if mark.exists():
        return
    mark.touch()
    # The parent of a rank is the raylet of its node.
    mark.with_name("raylet").write_text(str(os.getppid()))
    time.sleep(300)


@dataclass(frozen=True)
class Shared:
    loses_node: bool = False

    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        if self.loses_node and distributed.get_rank() == 1:
            wait_to_be_killed()
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()


sweep = Sweep(
    workload=Shared(),
    axes={"workers": [2], "placement": ["strict_spread"], "micro_batch": [1, 2]},
    measure=Measure(repeats=1, half_width=None, canary=False, nested=False, max_steps=10**6),
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
)
