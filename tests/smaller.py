"""A sweep of two worlds in one session, with a process that ends while the smaller one runs."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed, nn

from dtsweep import Measure, Resources, Sweep


@dataclass(frozen=True)
class Mortal:
    dies: str = "nobody"

    def build(self) -> nn.Module:
        # Named by the world and the rank in it that this process has had last.
        place = f"{os.environ['WORLD_SIZE']}-{os.environ['RANK']}"
        folder = Path(os.environ["DTSWEEP_TEST_MARK"])
        (folder / f"pid-{place}").write_text(str(os.getpid()))
        backend = distributed.group.WORLD._get_backend(torch.device("cpu"))
        (folder / f"timeout-{place}").write_text(str(backend.options._timeout.total_seconds()))
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        mark = Path(os.environ["DTSWEEP_TEST_MARK"], self.dies)
        if distributed.get_world_size() == 1 and self.dies == "idle" and not mark.exists():
            mark.touch()  # once: the next attempt goes well
            os.kill(int((mark.parent / "pid-2-1").read_text()), signal.SIGKILL)
            # A trial that goes on may end before a busy machine notices the death of an idle
            # process. The session ends this process as soon as it does.
            time.sleep(60)
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch)
        return answer.square().mean()


sweep = Sweep(
    workload=Mortal(),
    axes={"workers": [2, 1], "workload.dies": ["nobody", "idle"], "micro_batch": [1, 2]},
    skip=lambda p: "dies once" if p.micro_batch == 2 and p.workload.dies != "nobody" else None,
    measure=Measure(repeats=1, half_width=None, min_seconds=0.2, min_steps=5, canary=False),
    # On a cluster that was there before, ranks have no variable of the command.
    resources=Resources(environment={"DTSWEEP_TEST_MARK": os.environ.get("DTSWEEP_TEST_MARK", "")}),
)
