"""Modes of local updates train as their papers say, written out in one process in float64.

The processes are real.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtsweep.measure.traffic import Counting
from dtsweep.sweep.point import Point
from tests.contract.loop import Loop
from tests.contract.regression import CPU, Regression, Weights, job_of, model_of, weights
from tests.ranks import results_of
from tests.sync.test_local_steps import LEARNING_RATE, Optimizer, Weighted, gradient

WORLDS = (2, 3, 4)
SEED, BATCH, PASSES, PERIODS = 11, 3, 2, 3
NEAR = 1e-12
"""Largest distance from what is expected, relative to the way trained."""


CASES: dict[str, dict[str, Any]] = {
    "ring": {"sync": "gossip", "topology": "ring"},
    "ring every 2": {"sync": "gossip", "topology": "ring", "sync_period": 2},
    "exponential": {"sync": "gossip", "topology": "exponential"},
    "half": {"sync": "federated", "participation": 0.5, "sync_period": 2},
    "few": {"sync": "federated", "participation": 0.01, "sync_period": 1},
    "weighted": {"sync": "federated", "sync_period": 2, "workload": Weighted()},
    "all": {"sync": "federated", "participation": 1.0, "sync_period": 2},
}
PAIRS = [
    pytest.param(case, workers, marks=[pytest.mark.slow] if workers == 4 else [])
    for case in CASES
    for workers in WORLDS
]


def point_of(case: str, workers: int) -> Point:
    fields = {"workload": Regression(), **CASES[case]}
    return Point(
        workers=workers,
        micro_batch=BATCH,
        accumulation=PASSES,
        optimizer="momentum",
        learning_rate=LEARNING_RATE,
        **fields,
    )


def train_all(rank: int, workers: int) -> dict[str, dict[str, Any]]:
    return {case: train(case, rank=rank, workers=workers) for case in CASES}


def train(case: str, *, rank: int, workers: int) -> dict[str, Any]:
    point = point_of(case, workers)
    loop = Loop(replace(job_of(point, rank), seed=SEED), model_of(rank))
    mode = loop.mode
    mode.begin_period(0)
    trained, sent, counted = [], [], []
    for _ in range(PERIODS):
        with Counting() as counting:
            losses = loop.run(point.period)
        trained.append((weights(loop.model), losses))
        sent.append((counting.bytes_sent, counting.messages_sent))
        counted.append(mode.counters())
    for _ in range(math.ceil(math.log2(workers))):
        mode.exchange_alone()
    expected, alone = mode.expected_bytes(), weights(loop.model)
    mode.close()
    return {
        "trained": trained,
        "sent": sent,
        "counted": counted,
        "expected_bytes": expected,
        "alone": alone,
    }


@functools.cache
def outcomes(workers: int) -> list[dict[str, dict[str, Any]]]:
    """Outcomes of all cases, by rank."""
    return results_of(train_all, workers, workers=workers)


class Worker:
    """A worker as a textbook writes it: SGD with momentum on weighted passes."""

    def __init__(self, workload: Any) -> None:
        self.workload, self.values = workload, weights(model_of(0))
        self.optimizer, self.weight = Optimizer("momentum"), 0.0

    def step(self, step: int, *, place: int, places: int) -> None:
        """Take the samples of one of so many places in each pass of a step."""
        total, gradients = 0.0, np.zeros_like(self.values)
        for index in range(step * PASSES, (step + 1) * PASSES):
            begin = (index * places + place) * BATCH
            batch = self.workload.batch(range(begin, begin + BATCH), CPU)
            of_pass, weight = gradient(self.workload, self.values, batch)
            gradients, total = gradients + weight * of_pass, total + weight
        self.values = self.optimizer.updated(self.values, gradients / total)
        self.weight += total


def mixing_matrix(topology: str, *, workers: int, turn: int) -> Weights:
    """W of x_i <- sum over j of W_ij x_j: symmetric on a ring, one sender on the other graph."""
    mixing = np.zeros((workers, workers))
    for rank in range(workers):
        senders = {rank, (rank + 1) % workers, (rank - 1) % workers}
        if topology == "exponential":
            senders = {rank, (rank - 2 ** (turn % math.ceil(math.log2(workers)))) % workers}
        for sender in senders:
            mixing[rank, sender] = 1 / len(senders)
    return mixing


def gossip_by_hand(point: Point) -> list[list[Weights]]:
    """Parameters of each worker after each period: W^t (x - update), the update first."""
    workers = [Worker(point.workload) for _ in range(point.workers)]
    after = []
    for turn in range(PERIODS):
        for step in range(turn * point.period, (turn + 1) * point.period):
            for rank, worker in enumerate(workers):
                worker.step(step, place=rank, places=point.workers)
        assert point.topology is not None
        mixing = mixing_matrix(point.topology, workers=point.workers, turn=turn)
        mixed = mixing @ np.stack([worker.values for worker in workers])
        for worker, values in zip(workers, mixed, strict=True):
            worker.values = values
        after.append([*mixed])
    return after


def drawn_in(point: Point, period: int) -> list[int]:
    """The workers of a period, as the documentation says that they are drawn."""
    assert point.participation is not None
    count = max(1, math.floor(point.participation * point.workers + 0.5))
    random = np.random.default_rng((SEED, period))
    return sorted(random.choice(point.workers, size=count, replace=False).tolist())


def federated_by_hand(point: Point) -> list[list[Weights]]:
    """Parameters of each worker after each period: FedAvg, sum over k of n_k / n w_k."""
    agreed = weights(model_of(0))
    after = []
    for period in range(PERIODS):
        drawn = drawn_in(point, period)
        workers = [Worker(point.workload) for _ in drawn]
        for place, worker in enumerate(workers):
            worker.values = agreed
            for step in range(period * point.period, (period + 1) * point.period):
                worker.step(step, place=place, places=len(drawn))
        counts = np.array([worker.weight for worker in workers])
        agreed = counts @ np.stack([worker.values for worker in workers]) / counts.sum()
        after.append([agreed] * point.workers)
    return after


@pytest.mark.parametrize(("case", "workers"), PAIRS)
def test_workers_train_as_the_paper_says(case: str, workers: int) -> None:
    point = point_of(case, workers)
    by_hand = {"gossip": gossip_by_hand, "federated": federated_by_hand}[point.sync](point)
    start = weights(model_of(0))
    for rank, outcome in enumerate(outcomes(workers)):
        for period, (values, losses) in enumerate(outcome[case]["trained"]):
            expected = by_hand[period][rank]
            way = np.linalg.norm(expected - start)
            assert np.linalg.norm(values - expected) < NEAR * way
            if point.sync == "federated":
                trains = rank in drawn_in(point, period)
                assert [loss is not None for loss in losses] == [trains] * point.period


@pytest.mark.parametrize(("case", "workers"), PAIRS)
def test_a_worker_that_is_not_drawn_sends_nothing_and_the_others_as_much_as_is_expected(
    case: str, workers: int
) -> None:
    point, ranks = point_of(case, workers), [outcome[case] for outcome in outcomes(workers)]
    for period in range(PERIODS):
        sent = [rank["sent"][period] for rank in ranks]
        mean = sum(count for count, _ in sent) / workers / point.period
        # A drawn worker gives its weight to each other one.
        if not isinstance(point.workload, Weighted):
            assert [rank["expected_bytes"] for rank in ranks] == [pytest.approx(mean)] * workers
        if point.sync == "federated":
            drawn = {rank for rank, count in enumerate(sent) if count != (0, 0)}
            assert drawn <= {*drawn_in(point, period)}
            assert drawn or workers == 1
            counted = [rank["counted"][period] for rank in ranks]
            assert counted == [{"bytes_sent": b, "messages_sent": m} for b, m in sent]


@pytest.mark.slow
def test_the_one_peer_graph_of_four_workers_has_the_exact_mean_after_two_rounds() -> None:
    found = [outcome["exponential"] for outcome in outcomes(4)]
    before = [outcome["trained"][-1][0] for outcome in found]
    assert not np.allclose(before[0], before[1], rtol=0, atol=1e-6)
    for outcome in found:
        assert np.allclose(outcome["alone"], np.mean(before, axis=0), rtol=0, atol=1e-14)
