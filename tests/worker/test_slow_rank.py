"""Passes of a slow rank, on real ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dtsweep import Measure, Point
from tests.worker.on_ranks import run_trials

SAMPLES, STEPS = 6, 12
SAMPLE_S = 0.0008
"""What forward of a sample keeps a core busy, far above what else a pass takes."""

MEASURE = Measure(min_steps=STEPS, max_steps=STEPS, min_seconds=0, max_seconds=30, exchange="quick")


@dataclass(frozen=True)
class Busy:
    """A line through points, whose loss keeps its core busy for each sample."""

    def build(self) -> nn.Module:
        return nn.Linear(1, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.arange(samples.start, samples.stop, dtype=torch.float32)[:, None] / 100

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        ends = time.thread_time() + len(batch) * SAMPLE_S
        while time.thread_time() < ends:
            pass
        loss: Tensor = (model(batch) - batch).square().mean()
        return loss


def test_passes_of_a_slow_rank_take_its_factor_longer_and_none_of_it_is_exchange() -> None:
    point = Point(workers=2, micro_batch=SAMPLES, slow_rank=2.0, workload=Busy())
    trials = run_trials({"slow": (MEASURE, point)})
    row = trials.row("slow")
    assert (row["status"], row["implausible"]) == ("ok", None)
    slow = trials.measured("slow")[1].of_part("forward_s")
    assert np.median(slow) >= 2 * SAMPLES * SAMPLE_S
    assert row["straggler"] in (None, f"rank 1 on {trials.facts[1].node}")
