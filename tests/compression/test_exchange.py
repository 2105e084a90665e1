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
from dtsweep.sweep.compressions import CODINGS, COMPRESSIONS
from dtsweep.sweep.point import Point
from tests.contract.simulated import Simulated, on_ranks

RANKS = (1, 2, 3, 5)
LENGTHS = (1, 2, 4, BLOCK + 1, 4 * BLOCK)
CODED = [name for name, info in COMPRESSIONS.items() if info.can_be_coded]
WHOLE: dict[str, dict[str, Any]] = {
    "topk": {"compression_ratio": 1.0},
    "randomk": {"compression_ratio": 1.0},
}
NEAR = {
    "fp16": 1e-3,
    "bf16": 1e-2,
    "int8": 0.02,
    "int4": 0.4,
    "topk": 1e-6,
    "randomk": 1e-6,
    "powersgd": 1e-6,
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


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("name", CODED)
def test_coded_payloads_are_read_as_uncoded_ones_are(name: str, coding: str, ranks: int) -> None:
    plain = averaged(name, ranks=ranks, lengths=LENGTHS, steps=3)
    coded = averaged(name, ranks=ranks, lengths=LENGTHS, steps=3, compression_coding=coding)
    for one, other in zip(plain, coded, strict=True):
        for before, after in zip(one, other, strict=True):
            assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", ["topk", "sign", "randomk", "powersgd"])
def test_over_time_all_that_was_given_arrives(name: str, ranks: int) -> None:
    numel, steps = 3 * BLOCK, 400

    def work(worker: Simulated) -> float:
        fields: dict[str, Any] = {"compression_ratio": 0.1} if "k" in name else {}
        point = Point(workers=ranks, compression=name, **fields)
        given, total = torch.zeros(numel), torch.zeros(numel)
        mean = mean_for(point, given, worker, shapes=[torch.Size([numel // 24, 24])])
        for _ in range(steps):
            tensor = values_of(worker.rank, numel)
            mean.begin(tensor, unmarked)
            mean.finish(tensor, unmarked)
            total += tensor
        exact = torch.stack([values_of(rank, numel) for rank in range(ranks)]).mean(dim=0)
        return float((total / steps - exact).norm() / exact.norm())

    assert max(on_ranks(ranks, work)) < 0.1


def test_what_is_watched_is_held_against_the_exact_mean_once() -> None:
    def work(worker: Simulated) -> tuple[float, float, list[str]]:
        mean = mean_for(Point(workers=2, compression="int4"), torch.empty(BLOCK), worker)
        mean.is_watched = True
        for step in range(2):
            tensor = values_of(worker.rank, BLOCK, step)
            mean.begin(tensor, unmarked)
            mean.finish(tensor, unmarked)
            if step == 0:
                exact = (values_of(0, BLOCK) + values_of(1, BLOCK)) / 2
                assert mean.squared_norm == pytest.approx(float(exact.square().sum()))
                assert mean.squared_error == pytest.approx(float((tensor - exact).square().sum()))
        return mean.squared_error, mean.squared_norm, [kind for kind, _ in worker.sent]

    for apart, norm, sent in on_ranks(2, work):
        assert 0 < apart < norm
        assert sent == ["all_to_all", "all_gather", "all_reduce", "all_to_all", "all_gather"]


def test_watching_has_few_values_in_double_precision_at_a_time() -> None:
    numel = 2 * WATCHED + 3

    def work(worker: Simulated) -> tuple[float, float, list[int]]:
        mean = mean_for(Point(workers=2, compression="bf16"), torch.empty(numel), worker)
        mean.is_watched = True
        tensor = values_of(worker.rank, numel)
        mean.begin(tensor, unmarked)
        mean.finish(tensor, unmarked)
        exact = (values_of(0, numel).double() + values_of(1, numel)) / 2
        assert mean.squared_norm == pytest.approx(float(exact.square().sum()))
        return (
            mean.squared_error,
            float((tensor - exact).square().sum()),
            [nbytes for _, nbytes in worker.sent[1:]],
        )

    for apart, expected, sent in on_ranks(2, work):
        assert apart == pytest.approx(expected)
        assert sent == [8 * WATCHED, 8 * WATCHED, 24]


def test_phases_are_told_in_the_order_in_which_they_end() -> None:
    def work(worker: Simulated) -> dict[str, list[str]]:
        told = {}
        for name in ("bf16", "topk", "int8", "powersgd"):
            said: list[str] = []
            mean = mean_for(
                Point(workers=2, compression=name),
                torch.empty(2500),
                worker,
                shapes=[torch.Size([50, 50])],
            )
            tensor = values_of(worker.rank, 2500)
            mean.begin(tensor, said.append)
            mean.finish(tensor, said.append)
            told[name] = said
        return told

    for told in on_ranks(2, work):
        assert told["bf16"] == told["topk"] == ["compress", "sync", "compress"]
        assert (
            told["int8"] == told["powersgd"] == ["compress", "sync", "compress", "sync", "compress"]
        )
