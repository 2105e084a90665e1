"""The operations of a step: how many there are, what they move, and what that takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dtsweep.hardware.bandwidth import OperationRates
from dtsweep.measure import flops
from dtsweep.measure.flops import count_flops, count_operations
from dtsweep.measure.operations import OperationLog, moved_bytes, update_operations
from dtsweep.measure.work import Noted, PassOperations, step_work
from dtsweep.workloads import Cifar10Cnn, Gpt

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_counted_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "_counted", {})


@dataclass(frozen=True)
class Scaled:
    """Numbers times a parameter each: no matrix product anywhere."""

    def build(self) -> nn.Module:
        model = nn.Module()
        model.scale = nn.Parameter(torch.ones(100))
        return model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 100, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        scale: Tensor = model.scale
        return (batch * scale).sum()


def recorded(work: Callable[[], object]) -> list[int]:
    recorder = OperationLog()
    with recorder:
        work()
    return [noted.moved for noted in recorder.noted]


def test_an_operation_moves_what_it_reads_and_what_it_writes() -> None:
    left, right = torch.ones(10), torch.ones(10)
    assert recorded(lambda: left + right) == [120]
    assert recorded(lambda: left.add_(right)) == [120]
    assert recorded(lambda: torch.ones(4, 5) @ torch.ones(5, 6))[-1] == 4 * (20 + 30 + 24)
    # Of an embedding the rows that it gives; a sparse gradient is no obstacle.
    table, rows = nn.Embedding(1000, 8, sparse=True), torch.tensor([1, 2])
    assert recorded(lambda: nn.functional.embedding(rows, table.weight)) == [2 * (2 * 8 * 4)]
    assert sum(recorded(lambda: table(rows).sum().backward())) > 0


def test_views_and_empty_tensors_move_nothing_and_a_repeated_row_is_read_once() -> None:
    values = torch.ones(4, 5)
    assert recorded(lambda: (values.t(), values[1:], values.view(-1))) == []
    assert recorded(lambda: (torch.empty(9), torch.empty_like(values))) == []
    assert moved_bytes([torch.ones(1, 5).expand(100, 5)]) == 20


def test_a_pass_of_any_number_of_samples_follows_from_two() -> None:
    workload = Scaled()
    passes = count_operations(workload, model=workload.build(), precision="fp32", device=CPU)
    assert passes is not None
    for micro_batch in (1, 3, 50):
        model, batch = workload.build(), workload.batch(range(micro_batch), CPU)
        real = recorded(lambda model=model, batch=batch: workload.loss(model, batch).backward())
        _, moved = passes.at(micro_batch)
        assert moved.tolist() == pytest.approx(real)
    # There is nothing that FLOPs are counted of.
    assert count_flops(workload, model=workload.build(), precision="fp32", device=CPU) is None


@pytest.mark.parametrize("workload", [Gpt(layers=1, width=32, sequence=16), Cifar10Cnn()])
def test_of_our_workloads_operations_are_counted_with_all_flops(workload: Gpt | Cifar10Cnn) -> None:
    model = workload.build()
    counted = count_flops(workload, model=model, precision="fp32", device=CPU)
    passes = count_operations(workload, model=model, precision="fp32", device=CPU)
    assert counted is not None
    assert passes is not None
    arithmetic, moved = passes.at(8)
    assert arithmetic.sum() == pytest.approx(8 * (counted.hardware_per_sample or 0))
    assert (moved >= 0).all()
    # Weights are read however few the samples are.
    assert moved.sum() > 3 * 4 * sum(p.numel() for p in model.parameters())


def test_the_scores_of_attention_in_one_kernel_are_not_written() -> None:
    def moved(sequence: int) -> float:
        workload = Gpt(layers=1, width=32, heads=4, sequence=sequence)
        passes = count_operations(workload, model=workload.build(), precision="fp32", device=CPU)
        assert passes is not None
        return float(passes.at(4)[1].sum())

    # Twice the tokens, hardly more than twice the bytes: scores alone would be four times as many.
    assert moved(512) < 2.3 * moved(256)


def test_passes_with_other_operations_for_more_samples_are_unknown() -> None:
    one, two = [Noted(0, 8, (2,))], [Noted(0, 8, (2,)), Noted(0, 8, (2,))]
    assert PassOperations.of([one, two], (2, 4)) is None


@pytest.mark.parametrize(
    ("kind", "tensors"),
    [(torch.optim.SGD, 3), (functools.partial(torch.optim.SGD, momentum=0.9), 6)],
)
def test_an_update_moves_its_parameters_gradients_and_state(
    kind: Callable[..., torch.optim.Optimizer], tensors: int
) -> None:
    moved, launched = update_operations(functools.partial(kind, lr=0.1), [10, 1000], device=CPU)
    # Plain: reads parameter and gradient, writes the parameter. Momentum: the same of its buffer,
    # times a factor.
    assert moved.sum() >= 4 * tensors * 1010
    by_hand = [nn.Parameter(torch.ones(10)), nn.Parameter(torch.ones(1000))]
    optimizer = kind(by_hand, lr=0.1)
    for parameter in by_hand:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    real = recorded(optimizer.step)
    assert launched == len(real)
    assert moved.sum() == sum(real)


RATES = OperationRates(1e-3, (10, 20), (100.0, 100.0))


def test_each_operation_counts_as_arithmetic_or_as_bytes() -> None:
    # A product of 4 s with 100 bytes, a sum of 2 s without arithmetic; two passes, and an update of
    # 1 s.
    passes = np.array([400.0, 0.0]), np.array([100.0, 200.0])
    work = step_work(passes, (np.array([100.0]), 3), accumulation=2, rates=RATES, flops_per_s=100.0)
    assert (work.compute_s, work.memory_s) == pytest.approx((8, 5))
    assert (work.operations, work.moved_bytes) == (7, 700)
    assert work.launch_s == pytest.approx(7e-3)


def test_an_operation_whose_arithmetic_is_close_to_its_bytes_counts_as_both() -> None:
    # Products of 1 s each, with bytes for 1.5 s, for 0.1 s and for 9 s.
    passes = np.array([100.0, 100.0, 100.0]), np.array([150.0, 10.0, 900.0])
    work = step_work(passes, (np.zeros(0), 0), accumulation=1, rates=RATES, flops_per_s=100.0)
    assert (work.compute_s, work.memory_s) == pytest.approx((1 + 1, 1.5 + 9))
