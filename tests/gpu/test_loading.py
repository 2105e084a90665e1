"""Batches that are loaded, pinned and copied ahead train a GPU as those that are made on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dtsweep.sweep.point import Point
from dtsweep.sync.batches import BatchSource
from dtsweep.sync.mode import Job

pytestmark = pytest.mark.usefixtures("_warm_gpu")

AXES: tuple[dict[str, Any], ...] = (
    {"pin_memory": True},
    {"copy_ahead": True},
    {"loader_workers": 2, "pin_memory": True, "copy_ahead": True},
)


class Numbers:
    """A batch is large, so that a copy that nobody waits for would be seen."""

    def batch(self, samples: range, device: torch.device) -> dict[str, torch.Tensor]:
        return {"numbers": torch.tensor(samples, device=device).repeat_interleave(2**20).float()}


def sums_of(**axes: Any) -> list[float]:
    """Sums over 20 batches, each read by a kernel that follows some work."""
    device = torch.device("cuda", 0)
    point = Point(workload=Numbers(), micro_batch=4, **axes)
    source = BatchSource(Job(point=point, rank=0, device=device, loss=lambda *_: torch.zeros(())))
    layer = nn.Linear(4096, 4096, device=device)
    source.start(0)
    sums = []
    try:
        for number in range(20):
            batch = source.take(number, 0)
            layer(torch.ones(4096, 4096, device=device))
            sums.append(batch["numbers"].double().sum())
            del batch
    finally:
        source.close()
    return torch.stack(sums).tolist()


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_batches_are_those_that_are_made_on_the_device(axes: dict[str, Any]) -> None:
    assert sums_of(**axes) == sums_of()
