"""The wait of a slow rank on a GPU, whose kernel spins."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dtsweep.sync.pass_time import CudaPassTime

pytestmark = pytest.mark.usefixtures("_warm_gpu")

WIDTH = 4096


def step_s(factor: float) -> float:
    """Time of a step by events around all of them, in seconds."""
    device = torch.device("cuda", 0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4))).to(device)
    batch = torch.randn(2048, WIDTH, device=device)
    slowed = CudaPassTime(device, factor=factor)
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for step in range(60):
        if step == 20:
            ends[0].record()
        with slowed.forward():
            loss = model(batch).square().mean()
        with slowed.backward(loss):
            loss.backward()
    ends[1].record()
    torch.cuda.synchronize()
    return ends[0].elapsed_time(ends[1]) / 1e3 / 40


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_passes_of_a_slow_rank_take_its_factor_longer(factor: float) -> None:
    assert step_s(factor) / step_s(1.0) == pytest.approx(factor, rel=0.03)
