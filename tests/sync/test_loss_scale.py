"""fp16 with a scaled loss: what is left out is counted, and ranks leave out the same updates."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from tests.contract.loop import Loop
from tests.contract.regression import Weights, job_of, weights
from tests.ranks import results_of

SCALING = [name for name, mode in MODES.items() if mode.scales_loss]
STEPS = 6
FULL_AT = 2
"""Step in which one sample of rank 1 has an infinite gradient."""
TOLERANCE = 0.02
"""Of the way that training goes: factors are rounded by 2**-11, and gradients are sums of them."""


@dataclass(frozen=True)
class Rows:
    """A regression on rows of which one may be infinitely wrong, for rank 1 alone."""

    overflows: bool = False

    def build(self) -> nn.Module:
        return nn.Sequential(
            *(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)), nn.Linear(4, 1)
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        rows = torch.stack([torch.sin(k * numbers) for k in range(1, 6)], dim=1).float()
        # 4 rows per pass and rank: in the third step the last row is rank 1's.
        rows[numbers == 8 * FULL_AT + 7, -1] *= 1e30 if self.overflows else 1.0
        return rows

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch[:, :-1]).squeeze(1).float() - batch[:, -1]
        return wrong.square().mean()


def point_of(mode: str, **fields: Any) -> Point:
    return Point(
        **{
            "workers": 2,
            "micro_batch": 4,
            "sync": mode,
            "optimizer": "momentum",
            "learning_rate": 0.05,
            "clip_norm": 0.5,
            "workload": Rows(),
            **({"node_size": 1} if mode in ("hsdp", "hierarchical") else {}),
            **fields,
        }
    )


def train(point: Point, rank: int) -> tuple[Weights, dict[str, Any]]:
    torch.manual_seed(0)
    scaler = None
    if point.precision == "fp16":
        # That of torch lets the first steps overflow.
        scaler = GradScaler("cpu", init_scale=1024.0)
    job = replace(job_of(point, rank), scaler=scaler)
    loop = Loop(job, point.workload.build())
    loop.run(STEPS)
    found = weights(loop.model).astype(float), dict(loop.mode.counters())
    loop.mode.close()
    return found


def train_all(rank: int) -> dict[tuple[str, str], tuple[Weights, dict[str, Any]]]:
    found = {}
    for mode in SCALING:
        for name, fields in {
            "fp32": {},
            "fp16": {"precision": "fp16"},
            "overflow": {"precision": "fp16", "workload": Rows(overflows=True)},
        }.items():
            found[mode, name] = train(point_of(mode, **fields), rank)
    return found


@functools.cache
def trained() -> list[dict[tuple[str, str], tuple[Weights, dict[str, Any]]]]:
    return results_of(train_all, workers=2)


@pytest.mark.parametrize("mode", SCALING)
def test_fp16_trains_as_fp32_does_up_to_its_rounding_and_clips_unscaled_gradients(
    mode: str,
) -> None:
    torch.manual_seed(0)
    start = weights(Rows().build()).astype(float)
    for of_rank in trained():
        plain, counted = of_rank[mode, "fp32"]
        found, skipped = of_rank[mode, "fp16"]
        assert (counted, skipped) == ({}, {"skipped_updates": 0})
        far = np.linalg.norm(found - plain) / np.linalg.norm(plain - start)
        # It is fp16 that ran, and it is near.
        assert 0 < far < TOLERANCE


@pytest.mark.parametrize("mode", SCALING)
def test_an_overflow_on_one_rank_leaves_that_update_out_on_all(mode: str) -> None:
    first, second = (of_rank[mode, "overflow"] for of_rank in trained())
    assert first[1] == second[1] == {"skipped_updates": 1}
    assert np.array_equal(first[0], second[0])
    assert np.isfinite(first[0]).all()
