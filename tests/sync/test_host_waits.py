"""A step launches its work on a GPU without waiting for it, in every mode that needs no Ray.

Counted on a CPU, where a step reads the loss of each pass, which it does not on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync import weights
from dtsweep.sync.mode import Job
from dtsweep.sync.weights import PassFactors
from tests.contract.loop import Loop
from tests.contract.regression import CPU, Regression, job_of
from tests.host_waits import HostWaits, waits_of
from tests.ranks import results_by_case

RANKS, STEPS = 2, 4
WITHOUT_RAY = [name for name, mode in MODES.items() if not mode.needs_ray]
CASES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "clipped": {"clip_norm": 0.1, "accumulation": 2},
    "compressed": {"compression": "randomk", "compression_ratio": 0.5},
}


class Weighted(Regression):
    """Batches have weights in main memory."""

    def weight(self, batch: Tensor) -> float:
        return float(len(batch))


@pytest.mark.parametrize("value", [3, 3.0, np.array([3.0]), np.float32(3), torch.tensor([3])])
def test_a_weight_is_a_number_or_an_array_of_one(value: Any) -> None:
    assert weights.scalar(value, CPU).item() == 3


def points() -> Iterator[tuple[str, Point]]:
    """Points that are possible, by the words of mode and case."""
    for mode in WITHOUT_RAY:
        reads = MODES[mode].reads
        for case, fields in CASES.items():
            point = Point(
                workers=RANKS,
                sync=mode,
                sync_period=2 if "sync_period" in reads else None,
                node_size=1 if "node_size" in reads else None,
                # All workers have a loss in each step.
                participation=1.0 if "participation" in reads else None,
                workload=Weighted(),
                **fields,
            )
            if impossible(point) is None:
                yield f"{mode} {case}", point


POINTS = dict(points())


def waits_of_steps(words: str, rank: int) -> dict[str, int]:
    """Waits in the last two steps: the others make what all use again."""
    point = POINTS[words]
    loop = Loop(job_of(point, rank), point.workload.build())
    loop.run(STEPS - 2)
    with HostWaits() as waits, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.accelerator, "is_available", lambda: True)
        patch.setattr(
            torch.accelerator, "synchronize", lambda *_: waits.counts.update(["synchronize"])
        )
        loop.run(2)
    loop.mode.close()
    return dict(waits.counts)


@pytest.fixture(scope="module")
def by_rank() -> list[dict[str, dict[str, int]]]:
    return results_by_case(waits_of_steps, POINTS, workers=RANKS)


def test_weights_that_are_numbers_go_to_the_device_without_a_wait() -> None:
    point = Point(workload=Weighted(), accumulation=3)
    job = Job(point=point, rank=0, device=torch.device("meta"), loss=point.workload.loss)
    batches = [torch.empty(2, 3, device="meta")] * 3
    for weight in (point.workload.weight, lambda batch: batch.sum()):
        waits = waits_of(functools.partial(PassFactors, job, weight, batches, exchange=False))
        assert waits == {}


@pytest.mark.parametrize("words", POINTS)
def test_a_step_reads_nothing_but_the_loss_of_each_pass_of_a_cpu(
    by_rank: list[dict[str, dict[str, int]]], words: str
) -> None:
    for waits in by_rank:
        assert waits[words] == {"_local_scalar_dense": 2 * POINTS[words].accumulation}
