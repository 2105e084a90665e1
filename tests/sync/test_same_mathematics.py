"""Every exact mode trains as one process does that runs all ranks' passes one after another.

Random generators are seeded per step, pass and rank, so that dropout draws the same numbers and
batch normalisation sees the same samples on both sides. One spawn per number of workers trains
every exact mode of `MODES` that needs no Ray, with the changes of `CHANGES`; every optimizer and
every precision is tried in a mode of each kind. For types of gathers see `test_shard_policies.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn

from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import DEFAULTS
from dtsweep.sync import hierarchical
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.sync.compiled import compile_model
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from tests.contract.loop import Loop
from tests.contract.regression import Weights, job_of, weights
from tests.ranks import results_of

STEPS = 3
MICRO_BATCH = 4
WIDTH = 3
CLIP_NORM = 0.1
"""Less than the norm of every step's gradient."""

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "bf16": 1e-2}
"""By numbers: how far from the expected weights, as a share of the way that training went to those.

Sums over ranks in another order round otherwise, by 1e-16 of a gradient in float64 and 1e-7 in
float32; Adam divides by the root of its squares, which makes ten times more of what is small. Under
bf16 autocast weights that differ in their last bit may be rounded to neighbouring numbers in the
next step, 0.4 % apart.
"""

CHANGES: dict[int, list[dict[str, Any]]] = {
    2: [
        {"overlap": False},
        {"bucket_bytes": 64},
        {"node_size": 1},
        {"node_size": 2},
        {"checkpointing": "blocks"},
        {"compile": True},
        {"compile": True, "checkpointing": "blocks"},
        {"offload": True},
        {"reshard": "never", "node_size": 2},
    ],
    4: [{"node_size": 1}, {"node_size": 2}],
}
"""Fields of a point that a mode gets besides, by the number of workers.

Where there is one node, the sizes of nodes make no difference; other fields make the same one with
any number of workers.
"""

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "own")
CASES: list[tuple[Any, ...]] = [
    ("float64", "own", 3, True),
    ("bf16", "adamw", 3),
    ("float64", "sgd", 3),
    ("float32", "momentum", 3, True),
    ("float64", "sgd", 1),
    ("float64", "momentum", 3),
    ("float64", "adam", 1),
    ("float64", "adamw", 3),
    ("float32", "adamw", 3),
    ("bf16", "momentum", 1),
]
"""Numbers, optimizer, accumulation, and whether gradients are clipped."""
KINDS = ("ddp", "zero1", "fsdp", "ring")
"""A mode of each way to hold gradients and optimizer state: these have all cases with 2 workers.

Replicas, an optimizer in shards, all in shards, an exchange after backward.
"""
EXACT = [
    name
    for name, mode in MODES.items()
    if not mode.needs_ray and Point(sync=name).semantics == "exact"
]


@dataclass(frozen=True)
class Net:
    """Blocks with dropout and batch normalisation, odd in size, one parameter of them frozen."""

    is_double: bool = False

    def build(self) -> nn.Module:
        # No bias that batch normalisation takes away again: its gradient would be nothing but
        # rounding.
        def block() -> Any:
            layer = nn.Linear(WIDTH, WIDTH)
            return nn.Sequential(layer, nn.Tanh(), nn.BatchNorm1d(WIDTH), nn.Dropout(0.2))

        blocks = [block() for _ in range(3)]
        model = nn.Sequential(nn.Linear(WIDTH + 1, WIDTH), nn.Tanh(), *blocks, nn.Linear(WIDTH, 1))
        blocks[1][0].bias.requires_grad_(requires_grad=False)
        return model.double() if self.is_double else model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        rows = torch.stack([torch.sin(k * numbers) for k in range(1, WIDTH + 3)], dim=1)
        return rows if self.is_double else rows.float()

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch[:, :-1]).squeeze(1) - batch[:, -1]
        return wrong.square().mean()


@dataclass(frozen=True)
class OwnOptimizer(Net):
    """Decays matrices alone, and lets the others go faster."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        matrices = {"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1}
        others: Any = {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}
        groups = [matrices, {**others, "lr": 2 * learning_rate}]
        return torch.optim.AdamW(groups, lr=learning_rate)


@dataclass(frozen=True)
class Case:
    """What is trained, and how."""

    numbers: str
    optimizer: str
    accumulation: int
    is_clipped: bool = False

    def point(self, workers: int, **fields: Any) -> Point:
        kind = OwnOptimizer if self.optimizer == "own" else Net
        return Point(
            workers=workers,
            micro_batch=MICRO_BATCH,
            accumulation=self.accumulation,
            optimizer=DEFAULTS["optimizer"] if self.optimizer == "own" else self.optimizer,
            learning_rate=0.02,
            clip_norm=CLIP_NORM if self.is_clipped else None,
            precision="bf16" if self.numbers == "bf16" else "fp32",
            workload=kind(is_double=self.numbers == "float64"),
            **fields,
        )


ALL = [Case(*case) for case in CASES]
FEW = ALL[:4]
"""Of other modes, and of a mode with one of its fields changed."""
Key = tuple[str, Case]
"""A variant of a mode, a case."""


def variants(mode: str, workers: int, *, few: bool) -> Iterator[tuple[dict[str, Any], Case]]:
    """Yield the mode with its cases, and with each change that it can have in two cases.

    One and four workers divide parameters differently from two; their numbers are the same.

    Args:
        mode: value of `sync`.
        workers: training processes.
        few: True leaves out changes, and the cases that a mode of each kind has alone.
    """
    if workers != 2:
        cases = ALL[:1]
    elif few or mode not in KINDS:
        cases = FEW
    else:
        cases = ALL
    yield from (({"sync": mode}, case) for case in cases)
    drawn = random.Random(mode)
    for change in [] if few else CHANGES.get(workers, []):
        fields = {"sync": mode, **change}
        few_cases = FEW
        if "compile" in change:
            if mode not in KINDS:
                continue
            # Between fused operations nothing is rounded to bf16: it is another training.
            few_cases = [case for case in FEW if case.numbers != "bf16"]
        if impossible(Point(workers=workers, **fields)) is None:
            count = 2 if workers == 2 else 1
            yield from ((fields, case) for case in drawn.sample(few_cases, count))


def named(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in fields.items())


def model_of(point: Point) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = point.workload.build()
    return model


def seeded(job: Job, *, rank: int | None = None) -> Job:
    """Seed before each pass: what it draws depends on the number of the pass and the rank alone."""
    numbers = itertools.count()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        torch.manual_seed(100 * next(numbers) + (job.rank if rank is None else rank))
        return job.loss(model, batch)

    return replace(job, loss=loss)


def by_mode(point: Point, rank: int) -> Weights:
    """Train as one rank of a mode."""
    job, model = seeded(job_of(point, rank)), model_of(point)
    if point.checkpointing:
        checkpoint_blocks(model, point.workload)
    if point.compile:
        # Dropout then draws the numbers that it draws uncompiled.
        torch._inductor.config.fallback_random = True
        compile_model(model, point.workload, by_blocks=point.mode.shards)
    loop = Loop(job, model)
    loop.run(STEPS)
    loop.mode.drain()
    trained = weights(model).astype(float)
    loop.mode.close()
    if point.compile:
        torch._dynamo.reset()
    return trained


def by_one_process(point: Point, *, steps: int = STEPS, seeded_rank: int | None = None) -> Weights:
    """Run every rank's passes one after another, and update with the mean.

    Args:
        point: what is trained.
        steps: how many.
        seeded_rank: the rank whose numbers all draw; None for their own.
    """
    model = model_of(point)
    jobs = [seeded(job_of(point, rank), rank=seeded_rank) for rank in range(point.workers)]
    optimizer = make_optimizer(model.parameters(), point=point)
    shares = [batches_of_steps(job) for job in jobs]
    for _ in range(steps):
        for job, own in zip(jobs, shares, strict=True):
            for batch in next(own):
                (job.loss(model, batch) / point.accumulation / point.workers).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if point.clip_norm is not None:
            norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
            assert norm > 2 * point.clip_norm
            for gradient in gradients:
                gradient.mul_(point.clip_norm / (norm + 1e-6))
        optimizer.step()
        optimizer.zero_grad()
    return weights(model).astype(float)


def distance(found: Weights, case: Case, expected: Weights) -> float:
    """From weights to the expected ones, as a share of the way to those from the first ones."""
    start = weights(model_of(case.point(1)))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected - start))


def train_all(rank: int, workers: int, few: bool) -> dict[Key, Weights]:
    # Several chunks, of which the last is padded.
    hierarchical.CHUNK_BYTES = 64
    return {
        (named(fields), case): by_mode(case.point(workers, **fields), rank)
        for mode in EXACT
        for fields, case in variants(mode, workers, few=few)
    }


@functools.cache
def trained_by(workers: int, *, few: bool) -> list[dict[Key, Weights]]:
    return results_of(train_all, workers, few, workers=workers)


@functools.cache
def expected_of(case: Case, workers: int) -> Weights:
    return by_one_process(case.point(workers))


@pytest.mark.parametrize("case", [ALL[0], ALL[1], ALL[3]], ids=str)
def test_the_tolerance_tells_one_training_from_another(case: Case) -> None:
    expected = expected_of(case, 2)
    others = {
        "a step less": by_one_process(case.point(2), steps=STEPS - 1),
        "one mask for all": by_one_process(case.point(2), seeded_rank=0),
        "one worker's samples": by_one_process(case.point(1)),
    }
    far = {name: distance(weights, case, expected) for name, weights in others.items()}
    assert all(found > 2 * TOLERANCES[case.numbers] for found in far.values()), far


@pytest.mark.parametrize(
    ("workers", "few"),
    [
        (1, True),
        (2, True),
        pytest.param(2, False, marks=pytest.mark.slow),
        pytest.param(4, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("mode", EXACT)
def test_an_exact_mode_trains_as_one_process_does_that_runs_every_pass(
    mode: str, workers: int, few: bool
) -> None:
    ranks, cases = trained_by(workers, few=few), [*variants(mode, workers, few=few)]
    assert cases
    for fields, case in cases:
        for rank, trained in enumerate(ranks):
            far = distance(trained[named(fields), case], case, expected_of(case, workers))
            assert far <= TOLERANCES[case.numbers], (named(fields), case, rank)
