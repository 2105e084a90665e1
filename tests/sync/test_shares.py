"""Data-parallel groups with unequal samples train as one process with the whole batch."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from dtsweep.worker.batch_checks import BatchError, check_samples
from dtsweep.worker.reference import gradient_of_one_worker
from tests.ranks import free_ports, join, leave, spawn

CPU = torch.device("cpu")
WORKERS, STEPS = 2, 4
DEALT = (1, 5)
"""Samples of a pass of each worker."""

BALANCED = 2, (4, 2)
"""Step before which the samples are dealt again, and the samples of a pass from then on."""

CASES = {
    (mode, accumulation, is_weighted): f"{mode} {accumulation} {is_weighted}"
    for mode in ("ddp", "zero1", "hierarchical", "ring", "tree", "fsdp")
    for accumulation in (1, 3)
    for is_weighted in (False, True)
}


@dataclass(frozen=True)
class Fit:
    """A line through points whose places follow from their numbers."""

    def build(self) -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64)
        return torch.stack([torch.sin(numbers), torch.cos(2 * numbers), numbers % 5 / 5], dim=1)

    def errors(self, model: Any, batch: Tensor) -> Tensor:
        errors: Tensor = (model(batch[:, :2]).squeeze(1) - batch[:, 2]).square()
        return errors

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        return self.errors(model, batch).mean()


@dataclass(frozen=True)
class Weighted(Fit):
    """Points of the line, each by a weight that follows from its number."""

    def weight(self, batch: Tensor) -> Tensor:
        return (1 + batch[:, 2]).sum()

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        weights = 1 + batch[:, 2]
        return (weights * self.errors(model, batch)).sum() / weights.sum()


def point_of(case: tuple[str, int, bool]) -> Point:
    mode, accumulation, is_weighted = case
    return Point(
        workers=WORKERS,
        micro_batch=3,
        accumulation=accumulation,
        sync=mode,
        learning_rate=0.1,
        workload=Weighted() if is_weighted else Fit(),
    )


def job_of(case: tuple[str, int, bool], rank: int) -> Job:
    point = point_of(case)
    job = Job(point=point, rank=rank, device=CPU, loss=loss_in_precision(point, CPU))
    job.deal(DEALT)
    return job


def whole(parameters: Any) -> list[Tensor]:
    parts = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in parameters)
    return [part.detach().clone() for part in parts]


def train_all(rank: int, folder: Path, port: int) -> None:
    join(rank, workers=WORKERS, port=port)
    trained = {}
    for case, name in CASES.items():
        job = job_of(case, rank)
        mode, model = load_mode(case[0])(job), job.point.workload.build()
        mode.prepare(model, functools.partial(make_optimizer, point=job.point))
        clock, steps = CpuClock(), batches_of_steps(job)
        clock.start()
        losses = []
        for step in range(STEPS):
            if step == BALANCED[0]:
                job.deal(BALANCED[1])
            losses.append(mode.step(next(steps), clock))
        trained[name] = losses, whole(model.parameters())
        mode.close()
    torch.save(trained, folder / f"{rank}.pt")
    leave()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("shares")
    spawn(train_all, args=(folder, *free_ports(1)), nprocs=WORKERS)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORKERS)]


@pytest.mark.parametrize("case", CASES, ids=CASES.get)
def test_unequal_shares_that_change_train_on_each_sample_alike(
    trained: list[dict[str, Any]], case: tuple[str, int, bool]
) -> None:
    point = point_of(case)
    assert point.global_batch == sum(DEALT) * case[1]
    workload = point.workload
    model = workload.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        samples = range(step * point.global_batch, (step + 1) * point.global_batch)
        loss = workload.loss(model, workload.batch(samples, CPU))
        mean = sum(rank[CASES[case]][0][step] for rank in trained) / WORKERS
        assert mean == pytest.approx(float(loss.detach()), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for rank in trained:
        for found, expected in zip(rank[CASES[case]][1], model.parameters(), strict=True):
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_gradient_of_one_worker_weighs_unequal_shares(is_weighted: bool) -> None:
    job = job_of(("ddp", 2, is_weighted), 0)
    workload = job.point.workload
    model = workload.build()
    found = gradient_of_one_worker(job, model, seeds=range(WORKERS), limit_s=60)
    workload.loss(model, workload.batch(range(job.point.global_batch), CPU)).backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.allclose(gradient.double(), parameter.grad, rtol=1e-9, atol=1e-12)


def test_a_batch_has_as_many_samples_as_the_share_of_its_worker() -> None:
    job = job_of(("ddp", 1, False), 1)
    job = replace(job, point=replace(job.point, balance="static"))
    check_samples(job, Fit().batch(range(5), CPU))
    with pytest.raises(BatchError, match="3 samples where balance=static asked for 5"):
        check_samples(job, Fit().batch(range(3), CPU))
