"""The mean of a tensor over workers by each way in which payloads come together.

Workers are threads here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from dtsweep.compression.exchange import WATCHED, Mean, mean_for, unmarked
from dtsweep.compression.scale_blocks import BLOCK
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point
from tests.contract.simulated import Simulated, on_ranks

RANKS = (1, 2, 5)
LENGTHS = (1, 2, 4, BLOCK + 1, 4 * BLOCK)
WHOLE: dict[str, dict[str, Any]] = {
    "topk": {"compression_ratio": 1.0},
    "randomk": {"compression_ratio": 1.0},
}
NEAR = {
    **{"fp16": 1e-3, "bf16": 1e-2, "int8": 0.02, "int4": 0.4},
    **dict.fromkeys(("topk", "randomk", "powersgd"), 1e-6),
}
"""Largest difference to the exact mean, as a share of the largest value.

With `powersgd` no tensor is a matrix.
"""


def values_of(rank: int, numel: int, step: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(1000 * rank + step))


def averaged(
    name: str, *, ranks: int, lengths: Sequence[int], steps: int = 1, **fields: Any
) -> list[list[list[Tensor]]]:
    """By rank, step and tensor the means.

    Tensors are begun one after another, and then finished.
    """

    def work(worker: Simulated) -> list[list[Tensor]]:
        point = Point(workers=ranks, compression=name, **fields)
        tensors = [torch.empty(numel) for numel in lengths]
        means: list[Mean] = [
            mean_for(point, tensor, worker, shapes=[tensor.shape], seed=index)
            for index, tensor in enumerate(tensors)
        ]
        found = []
        for step in range(steps):
            tensors = [values_of(worker.rank, numel, step) for numel in lengths]
            for mean, tensor in zip(means, tensors, strict=True):
                mean.begin(tensor, unmarked)
            for mean, tensor in zip(means, tensors, strict=True):
                mean.finish(tensor, unmarked)
            found.append(tensors)
        return found

    return on_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_the_mean_is_near_and_the_same_to_the_last_bit_on_all(name: str, ranks: int) -> None:
    by_rank = averaged(name, ranks=ranks, lengths=LENGTHS, **WHOLE.get(name, {}))
    for index, numel in enumerate(LENGTHS):
        exact = torch.stack([values_of(rank, numel) for rank in range(ranks)]).mean(dim=0)
        largest = max(float(values_of(rank, numel).abs().max()) for rank in range(ranks))
        first = by_rank[0][0][index]
        assert all(torch.equal(rank[0][index], first) for rank in by_rank)
        if name in NEAR:
            assert (first - exact).abs().max() <= NEAR[name] * largest


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["topk", "sign", "randomk", "powersgd"])
def test_over_time_all_that_was_given_arrives(name: str, ranks: int) -> None:
    numel, steps = 2 * BLOCK, 400
    fields: dict[str, Any] = {"compression_ratio": 0.1} if name in ("topk", "randomk") else {}
    given = [values_of(rank, numel) for rank in range(ranks)]

    def work(worker: Simulated) -> Tensor:
        point, total = Point(workers=ranks, compression=name, **fields), torch.zeros(numel)
        mean = mean_for(point, total, worker, shapes=[torch.Size([numel // 16, 16])])
        for _ in range(steps):
            tensor = given[worker.rank].clone()
            mean.begin(tensor, unmarked)
            mean.finish(tensor, unmarked)
            total += tensor
        return total / steps

    exact = torch.stack(given).mean(dim=0)
    for found in on_ranks(ranks, work):
        assert (found - exact).norm() < 0.1 * exact.norm()


def watched(mean: Mean, worker: Simulated, numel: int) -> list[int]:
    """Exchange values that are watched, and hold the difference against the exact mean's.

    Returns:
        Bytes of the all-reduces, which only watching has here.
    """
    mean.is_watched = True
    tensor = values_of(worker.rank, numel)
    mean.begin(tensor, unmarked)
    mean.finish(tensor, unmarked)
    exact = (values_of(0, numel).double() + values_of(1, numel)) / 2
    assert mean.squared_norm == pytest.approx(float(exact.square().sum()))
    assert mean.squared_error == pytest.approx(float((tensor - exact).square().sum()))
    return [count for kind, count in worker.sent if kind == "all_reduce"]


def test_what_is_watched_is_held_against_the_exact_mean_once() -> None:
    def work(worker: Simulated) -> tuple[list[int], list[str]]:
        mean = mean_for(Point(workers=2, compression="int4"), torch.empty(BLOCK), worker)
        sent = watched(mean, worker, BLOCK)
        tensor = values_of(worker.rank, BLOCK, 1)
        mean.begin(tensor, unmarked)
        mean.finish(tensor, unmarked)
        return sent, [kind for kind, _ in worker.sent]

    kinds = ["all_to_all", "all_gather", "all_reduce", "all_to_all", "all_gather"]
    assert on_ranks(2, work) == [([8 * BLOCK], kinds)] * 2


def test_watching_has_few_values_in_double_precision_at_a_time() -> None:
    numel = 2 * WATCHED + 3

    def work(worker: Simulated) -> list[int]:
        mean = mean_for(Point(workers=2, compression="topk"), torch.empty(numel), worker)
        return watched(mean, worker, numel)

    assert on_ranks(2, work) == [[8 * WATCHED, 8 * WATCHED, 24]] * 2


def test_phases_are_told_in_the_order_in_which_they_end() -> None:
    def work(worker: Simulated) -> list[list[str]]:
        told = []
        for name in ("bf16", "topk", "int8", "powersgd"):
            point, said = Point(workers=2, compression=name), list[str]()
            tensor = values_of(worker.rank, 2500)
            mean = mean_for(point, tensor, worker, shapes=[torch.Size([50, 50])])
            mean.begin(tensor, said.append)
            mean.finish(tensor, said.append)
            told.append(said)
        return told

    once = ["compress", "sync", "compress"]
    twice = [*once, "sync", "compress"]
    assert on_ranks(2, work) == [[once, once, twice, twice]] * 2
