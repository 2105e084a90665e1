"""Modes with own steps of each worker equal their papers' updates by hand, in one process.

By hand is: one vector of parameters for each worker, the optimizers' formulas, and the mean of a
period as the paper has it. One spawn trains all cases on gloo, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dtsweep.measure.traffic import Counting
from dtsweep.sweep.point import Point
from dtsweep.sync.passes import batches_of_steps
from tests.contract.loop import Loop
from tests.contract.regression import Regression, Weights, job_of, model_of, weights
from tests.ranks import results_by_case

WORKERS = 4
PERIOD, PERIODS = 3, 3
LEARNING_RATE = 0.05
TOLERANCE = 1e-12
"""Largest distance of weights, as a share of the way that training went."""
TOP = 0.3
"""Share of the values that `topk` sends."""


@dataclass(frozen=True)
class Forked(Regression):
    """Passes of some batches leave the first layer's bias out."""

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        first: Any = model[0]  # type: ignore[index]  # a sequence of layers
        if int(batch[0, 3]) == 1:
            hidden = batch[:, :3] @ first.weight.T
        else:
            hidden = first(batch[:, :3])
        wrong: Tensor = model[2](model[1](hidden)).squeeze(1) - batch[:, 3]  # type: ignore[index]
        return wrong.square().mean()


@dataclass(frozen=True)
class Weighted(Regression):
    """Batches count by their targets."""

    def weight(self, batch: Tensor) -> Tensor:
        return 1 + batch[:, 3].sum()


@dataclass(frozen=True)
class OwnAdagrad(Regression):
    """An optimizer that has state before its first step."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(parameters, lr=learning_rate, initial_accumulator_value=0.1)


@dataclass(frozen=True)
class Case:
    mode: str
    optimizer: str = "momentum"
    fields: Mapping[str, Any] = field(default_factory=dict)
    workload: Any = Regression()  # noqa: RUF009  # frozen

    def __str__(self) -> str:
        words = [self.mode, self.optimizer, *(f"{k}={v}" for k, v in self.fields.items())]
        return " ".join([*words, type(self.workload).__name__])

    def point(self) -> Point:
        return Point(
            workers=WORKERS,
            micro_batch=2,
            sync=self.mode,
            sync_period=PERIOD,
            optimizer=self.optimizer,
            learning_rate=LEARNING_RATE,
            workload=self.workload,
            **self.fields,
        )

    def steps(self) -> int:
        return int(self.fields.get("synchronous_steps", 0)) + PERIOD * PERIODS


TOPK = {"compression": "topk", "compression_ratio": TOP}
CASES = [
    *(
        Case("local_sgd", optimizer, {"local_momentum": momentum})
        for optimizer in ("momentum", "adamw")
        for momentum in ("keep", "average", "reset")
    ),
    Case("local_sgd", "sgd", {"local_momentum": "reset"}, OwnAdagrad()),
    Case("local_sgd", "adamw", {"synchronous_steps": 4}),
    Case("local_sgd", "momentum", {"synchronous_steps": 2, "clip_norm": 0.1}),
    Case("local_sgd", "momentum", {"synchronous_steps": 4, "local_momentum": "average"}, Forked()),
    Case("local_sgd", "momentum", {"synchronous_steps": 4}, Weighted()),
    Case("local_sgd", "momentum", {"synchronous_steps": 2, **TOPK}),
    Case("diloco", "adamw"),
    Case("diloco", "momentum", {"outer_learning_rate": 0.5, "outer_momentum": 0.6}),
    Case("diloco", "sgd", {"outer_learning_rate": 1.0, "outer_momentum": 0.0}),
    Case("diloco", "adamw", TOPK),
]


def train(index: int, rank: int) -> dict[str, Any]:
    """Train, exchange twice by itself, and count what the last period and the exchanges send."""
    case = CASES[index]
    loop = Loop(job_of(case.point(), rank), model_of(rank))
    mode = loop.mode
    loop.run(case.steps() - PERIOD)
    with Counting() as of_period:
        loop.run(PERIOD)
    trained = weights(loop.model)
    with Counting() as alone:
        shared_by = [mode.exchange_alone() for _ in range(2)]
    found = {
        "weights": trained,
        "after_alone": weights(loop.model),
        "sent": float(of_period.bytes_sent or 0),
        "expected": (mode.expected_bytes() or 0) * PERIOD,
        "alone": [float(alone.bytes_sent or 0) / 2, shared_by],
    }
    mode.close()
    return found


@functools.cache
def trained() -> list[dict[int, dict[str, Any]]]:
    """Results of each rank by the index of the case."""
    return results_by_case(train, range(len(CASES)), workers=WORKERS)


@functools.cache
def expected_of(index: int) -> Weights:
    return by_hand(CASES[index])


class Optimizer:
    """SGD, momentum, Adam, AdamW or Adagrad by formula, on a vector."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reset()

    def reset(self) -> None:
        self.count, self.moments = 0, [np.zeros(1), np.full(1, 0.1 * (self.name == "adagrad"))]

    def updated(self, x: Weights, gradient: Weights) -> Weights:
        self.count += 1
        if self.name == "sgd":
            return x - LEARNING_RATE * gradient
        if self.name == "adagrad":
            self.moments[1] = self.moments[1] + gradient**2
            root: Weights = np.sqrt(self.moments[1]) + 1e-10
            return x - LEARNING_RATE * gradient / root
        if self.name == "momentum":
            self.moments[0] = 0.9 * self.moments[0] + gradient
            return x - LEARNING_RATE * self.moments[0]
        first = 0.9 * self.moments[0] + 0.1 * gradient
        second = 0.999 * self.moments[1] + 0.001 * gradient**2
        self.moments = [first, second]
        root = np.sqrt(second / (1 - 0.999**self.count)) + 1e-8
        kept = 1 - LEARNING_RATE * 0.01 * (self.name == "adamw")
        return x * kept - LEARNING_RATE * first / (1 - 0.9**self.count) / root


def gradient(workload: Any, x: Weights, batch: Tensor) -> tuple[Weights, float]:
    """Gradient of a pass, zeros where it uses no parameter; and what it counts."""
    model = model_of(0)
    nn.utils.vector_to_parameters(torch.from_numpy(x.copy()), model.parameters())
    workload.loss(model, batch).backward()
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    counts = float(workload.weight(batch)) if isinstance(workload, Weighted) else 1.0
    return nn.utils.parameters_to_vector(parts).numpy(), counts


def mean_of(case: Case, changes: list[Weights], residuals: list[Weights]) -> Weights:
    """Mean of the workers' changes; with `topk` of what each sends, which leaves residuals."""
    sent = []
    for change, residual in zip(changes, residuals, strict=True):
        if "compression" not in case.fields:
            sent.append(change)
            continue
        values = residual + change
        kept = np.zeros_like(values)
        largest = np.argsort(-np.abs(values))[: int(np.ceil(TOP * len(values)))]
        kept[largest] = values[largest]
        residual[:] = values - kept
        sent.append(kept)
    mean: Weights = np.mean(sent, axis=0)
    return mean


def by_hand(case: Case) -> Weights:
    """Weights at the end of the last period, the same of all workers."""
    ranks, fields = range(WORKERS), case.fields
    start = weights(model_of(0))
    own, outer_buffer = [start.copy() for _ in ranks], np.zeros_like(start)
    residuals = [np.zeros_like(start) for _ in ranks]
    name = "adagrad" if isinstance(case.workload, OwnAdagrad) else case.optimizer
    optimizers = [Optimizer(name) for _ in ranks]
    batches = [batches_of_steps(job_of(case.point(), rank)) for rank in ranks]
    first = fields.get("synchronous_steps", 0)
    for step in range(case.steps()):
        found = [gradient(case.workload, own[rank], next(next(batches[rank]))) for rank in ranks]
        gradients = [each for each, _ in found]
        if step < first:
            total = sum(counts for _, counts in found)
            gradients = [sum(g * counts / total for g, counts in found)] * WORKERS  # type: ignore[list-item]
        if "clip_norm" in fields:
            norms = [np.linalg.norm(each) + 1e-6 for each in gradients]
            gradients = [
                each * min(1.0, fields["clip_norm"] / norm)
                for each, norm in zip(gradients, norms, strict=True)
            ]
        own = [optimizers[rank].updated(own[rank], gradients[rank]) for rank in ranks]
        if step + 1 == first:
            start = own[0]
        if step < first or (step + 1 - first) % PERIOD:
            continue
        change = mean_of(case, [x - start for x in own], residuals)
        if case.mode == "diloco":
            momentum = fields.get("outer_momentum", 0.9)
            outer_buffer = momentum * outer_buffer - change
            start = start - fields.get("outer_learning_rate", 0.7) * (
                momentum * outer_buffer - change
            )
        else:
            start = start + change
        own = [start.copy() for _ in ranks]
        _combine_moments(fields.get("local_momentum", "keep"), optimizers)
    return start


def _combine_moments(way: str, optimizers: list[Optimizer]) -> None:
    mean = [np.mean(each, axis=0) for each in zip(*(o.moments for o in optimizers), strict=True)]
    for optimizer in optimizers:
        if way == "average":
            optimizer.moments = list(mean)
        if way == "reset":
            optimizer.reset()


def distance(one: Weights, expected: Weights) -> float:
    way = np.linalg.norm(expected - weights(model_of(0)))
    return float(np.linalg.norm(one - expected) / way)


EACH = pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: str(CASES[index]))


@EACH
def test_a_mode_trains_as_its_paper_says(index: int) -> None:
    for rank in trained():
        assert distance(rank[index]["weights"], expected_of(index)) <= TOLERANCE


def test_the_tolerance_tells_the_cases_from_one_another() -> None:
    vectors = [expected_of(index) for index in range(len(CASES))]
    apart = [distance(one, other) for index, one in enumerate(vectors) for other in vectors[:index]]
    assert min(apart) > 1e-4


@EACH
def test_an_exchange_alone_sends_what_a_period_does_and_changes_nothing(index: int) -> None:
    for found in (rank[index] for rank in trained()):
        assert found["alone"] == [found["sent"], [PERIOD, PERIOD]]
        assert np.abs(found["after_alone"] - found["weights"]).max() < 1e-15
        if "compression" not in CASES[index].fields:
            assert found["sent"] == found["expected"]
