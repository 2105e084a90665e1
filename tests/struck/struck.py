"""A sweep whose trials are struck from outside: once each, so that the next attempt goes well."""

import signal
from dataclasses import dataclass

import strikes
import torch
from torch import nn

from dtsweep import Measure, Sweep


@dataclass(frozen=True)
class Struck:
    by: str = "nothing"

    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        if samples.start and self.by != "nothing" and strikes.is_first(self.by):
            if self.by == "notice":
                strikes.take_node_back()
            elif self.by == "early notice":
                strikes.give_notice(self.by, 120)
            else:
                # "Slot, frozen" stops the process of the slot, and "Slot" kills it.
                process, _, how = self.by.partition(", ")
                number = signal.SIGSTOP if how == "frozen" else signal.SIGKILL
                strikes.send(number, process)
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()


sweep = Sweep(
    workload=Struck(),
    axes={"workers": [1], "workload.by": ["nothing", "notice"]},
    measure=Measure(
        repeats=1, half_width=None, min_seconds=2, min_steps=5, max_steps=10**6, canary=False
    ),
)
