"""A sweep whose workload fails on one rank in the way that an axis says."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed, nn

from dtsweep import Measure, Resources, Sweep

STEP = 4


@dataclass(frozen=True)
class Faulty:
    fault: str = "none"

    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        step = samples.start // (len(samples) * distributed.get_world_size())
        if step == STEP and distributed.get_rank() == distributed.get_world_size() - 1:
            self._fail()
        if self.fault == "raise_everywhere" and step == STEP:
            raise ValueError("wrong on every rank")
        if self.fault == "size":
            return torch.ones(7, 4, device=device)
        factors = {"nan": float("nan"), "bypass": 1.0 + distributed.get_rank()}
        return torch.ones(len(samples), 4, device=device) * factors.get(self.fault, 1.0)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model.module(batch) if self.fault == "bypass" else model(batch)
        return answer.square().mean()

    def _fail(self) -> None:
        print(f"about to {self.fault}")
        if self.fault == "raise":
            raise ValueError("wrong on one rank")
        if (
            self.fault == "kill"
            and not (mark := Path(os.environ["DTSWEEP_TEST_MARK"], "killed")).exists()
        ):
            mark.touch()  # once: the next attempt goes well
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == "oom":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


sweep = Sweep(
    workload=Faulty(),
    axes={
        "workers": [2],
        "workload.fault": [
            "none",
            "raise",
            "raise_everywhere",
            "kill",
            "hang",
            "stop",
            "oom",
            "nan",
            "bypass",
            "size",
        ],
        "micro_batch": [1, 2],
    },
    skip=lambda p: "faults once" if p.micro_batch == 2 and p.workload.fault != "none" else None,
    # A canary would be one of these, at fault like it.
    measure=Measure(
        half_width=None,
        min_seconds=0,
        min_steps=5,
        warmup_steps=8,
        max_warmup_seconds=5,
        canary=False,
    ),
    # On a cluster that was there before, ranks have no variable of the command.
    resources=Resources(environment={"DTSWEEP_TEST_MARK": os.environ.get("DTSWEEP_TEST_MARK", "")}),
)
