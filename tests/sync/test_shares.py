"""Data-parallel groups with unequal samples train as one process with the whole batch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.worker.batch_checks import BatchError, check_samples
from tests.contract import regression
from tests.contract.loop import Loop
from tests.contract.regression import CPU, Regression, model_of, weights
from tests.ranks import results_by_case

WORKERS, STEPS = 2, 4
DEALT = (1, 5)
"""Samples of a pass of each worker."""

BALANCED = 2, (4, 2)
"""Step before which the samples are dealt again, and the samples of a pass from then on."""

MODES = ("ddp", "zero1", "hierarchical", "ring", "tree", "fsdp")
Case = tuple[str, int, bool]
CASES: list[Case] = [*itertools.product(MODES, (1, 3), (False, True))]
"""Mode, passes of a step, and whether samples have weights."""


@dataclass(frozen=True)
class Weighted(Regression):
    """Samples each by a weight that follows from its number."""

    def weight(self, batch: Tensor) -> Tensor:
        return (1 + batch[:, 2]).sum()

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch[:, :3]).squeeze(1) - batch[:, 3]
        weights = 1 + batch[:, 2]
        return (weights * wrong.square()).sum() / weights.sum()


def point_of(case: Case) -> Point:
    mode, accumulation, is_weighted = case
    return Point(
        workers=WORKERS,
        micro_batch=3,
        accumulation=accumulation,
        sync=mode,
        learning_rate=0.1,
        workload=Weighted() if is_weighted else Regression(),
    )


def job_of(case: Case, rank: int) -> Job:
    job = regression.job_of(point_of(case), rank)
    job.deal(DEALT)
    return job


def train(case: Case, rank: int) -> Any:
    job = job_of(case, rank)
    loop = Loop(job, model_of(rank))
    losses = loop.run(BALANCED[0])
    job.deal(BALANCED[1])
    losses += loop.run(STEPS - BALANCED[0])
    trained = weights(loop.model)
    loop.mode.close()
    return losses, trained


@pytest.fixture(scope="module")
def trained() -> list[dict[Case, Any]]:
    return results_by_case(train, CASES, workers=WORKERS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_unequal_shares_that_change_train_on_each_sample_alike(
    trained: list[dict[Case, Any]], case: Case
) -> None:
    point = point_of(case)
    assert point.global_batch == sum(DEALT) * case[1]
    workload = point.workload
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        samples = range(step * point.global_batch, (step + 1) * point.global_batch)
        loss = workload.loss(model, workload.batch(samples, CPU))
        mean = sum(rank[case][0][step] for rank in trained) / WORKERS
        assert mean == pytest.approx(float(loss.detach()), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for rank in trained:
        assert np.abs(rank[case][1] - weights(model)).max() <= 1e-12


def test_a_batch_has_as_many_samples_as_the_share_of_its_worker() -> None:
    job = job_of(("ddp", 1, False), 1)
    job = replace(job, point=replace(job.point, balance="static"))
    check_samples(job, Regression().batch(range(5), CPU))
    with pytest.raises(BatchError, match="3 samples where balance=static asked for 5"):
        check_samples(job, Regression().batch(range(3), CPU))
