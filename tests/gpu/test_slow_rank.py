"""The wait of a slow rank on a GPU, whose kernel spins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dtsweep.sync.pass_time import CudaPassTime

pytestmark = pytest.mark.usefixtures("_warm_gpu")

WIDTH = 4096


def pass_and_step_s(factor: float) -> tuple[float, float]:
    """Times of a pass by the timer, and of a step by events around all of them, in seconds."""
    device = torch.device("cuda", 0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to(device)
    batch = torch.randn(2048, WIDTH, device=device)
    timer = CudaPassTime(device, factor=factor)
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for step in range(60):
        if step == 20:
            timer.take()
            ends[0].record()
        with timer.forward():
            loss = model(batch).square().mean()
        with timer.backward(loss):
            loss.backward()
    ends[1].record()
    torch.cuda.synchronize()
    return timer.take(), ends[0].elapsed_time(ends[1]) / 1e3 / 40


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_passes_of_a_slow_rank_take_its_factor_longer(factor: float) -> None:
    usual_s, usual_step_s = pass_and_step_s(1.0)
    slow_s, slow_step_s = pass_and_step_s(factor)
    assert slow_s / usual_s == pytest.approx(factor, rel=0.03)
    assert slow_step_s / usual_step_s == pytest.approx(factor, rel=0.03)
