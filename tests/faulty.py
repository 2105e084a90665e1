"""A sweep whose workload fails on one rank in the way that an axis says."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed, nn

from dtsweep import Measure, Resources, Sweep

STEP = 4

TOKEN = "of-no-known-form-1"
"""A secret that only the name of its variable gives away."""

SLOW_STEP = 11
"""A step of the window, which begins after `warmup_steps`."""


@dataclass(frozen=True)
class Faulty:
    fault: str = "none"

    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        step = samples.start // (len(samples) * distributed.get_world_size())
        if step == STEP and _is_last():
            self._fail()
        if self.fault == "slow" and step == SLOW_STEP and _is_last():
            time.sleep(1)
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()

    def _fail(self) -> None:
        print(f"about to {self.fault}")
        if self.fault == "raise":
            # As a script reads it from a file: the driver does not know it.
            token = os.environ["HUB_TOKEN"] = TOKEN
            print(f"the token is {token}")
            words = f"401 for {token} at https://me:{token}@hub/x?token={token} --hf-token {token}"
            raise ValueError(f"wrong on one rank: {words}")
        if self.fault == "kill" and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "kernel":
            # As a CUDA error ends a process: there is no kernel here.
            print("terminate called after throwing an instance of 'c10::AcceleratorError'")
            print("  what():  CUDA error: device-side assert triggered")
            print(
                "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96", flush=True
            )
            os.abort()
        if self.fault == "hang":
            time.sleep(3600)
        if self.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == "leave":
            self._leave()

    def _is_first(self) -> bool:
        """True once: the next attempt goes well."""
        mark = Path(os.environ["DTSWEEP_TEST_MARK"], self.fault)
        is_first = not mark.exists()
        mark.touch()
        return is_first

    def _leave(self) -> None:
        os.environ["DTSWEEP_TEST_LEFT"] = "1"
        os.chdir("/")
        sys.stdout.close()
        subprocess.Popen(["sleep", "300"])
        threading.Thread(target=_spin, daemon=True).start()


def _is_last() -> bool:
    return distributed.get_rank() == distributed.get_world_size() - 1


def _spin() -> None:
    while True:
        pass


sweep = Sweep(
    workload=Faulty(),
    axes={
        "workers": [2],
        "workload.fault": ["none", "raise", "kill", "kernel", "hang", "stop", "slow", "leave"],
        "micro_batch": [1, 2],
    },
    skip=lambda p: "faults once" if p.micro_batch == 2 and p.workload.fault != "none" else None,
    # A canary would be one of these, at fault like it.
    measure=Measure(
        repeats=1,
        half_width=None,
        min_seconds=0,
        min_steps=5,
        warmup_steps=8,
        max_warmup_seconds=15,
        canary=False,
    ),
    # On a cluster that was there before, ranks have no variable of the command.
    resources=Resources(environment={"DTSWEEP_TEST_MARK": os.environ.get("DTSWEEP_TEST_MARK", "")}),
)
