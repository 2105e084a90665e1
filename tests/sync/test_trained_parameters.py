"""Modes exchange trained parameters alone, and complex ones as the pairs of numbers that they are.

Each mode trains a model with a complex parameter, and the same model with pairs in its place: the
parameters are the same ones. Both models have a frozen float and a frozen integer parameter too.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dtsweep.measure.traffic import Counting
from dtsweep.sweep.point import Point
from dtsweep.sync.buckets import real_view
from dtsweep.sync.mode import Job
from tests.contract.loop import Loop
from tests.ranks import results_by_case

WORKERS, PERIODS = 3, 2
NUMBERS = 24
"""Trained ones."""
SHIFT, CODE = 0.1, 2**60 + 1
"""Values of the frozen parameters: a mean over three workers would not leave them as they are."""


class Turned(nn.Module):
    def __init__(self, *, is_complex: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        pairs = torch.randn(4, 3, 2, dtype=torch.float64)
        self.turn = nn.Parameter(torch.view_as_complex(pairs) if is_complex else pairs)
        shift, code = torch.full((3,), SHIFT, dtype=torch.float64), torch.tensor([CODE, 1])
        self.shift = nn.Parameter(shift, requires_grad=False)
        self.code = nn.Parameter(code, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        turn: Tensor = self.turn
        if not turn.is_complex():
            turn = torch.view_as_complex(turn)
        # The gradient of the complex one is lazily conjugated.
        turned = turn.conj() * (x + self.shift)[:, None, :]
        return turned.real.sum(2) + turned.imag.square().sum(2)


@dataclass(frozen=True)
class Turning:
    is_complex: bool

    def build(self) -> nn.Module:
        return Turned(is_complex=self.is_complex)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        return torch.stack([torch.sin(k * numbers + k) for k in (1, 2, 3)], dim=1)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        loss: Tensor = (model(batch) - 1).square().mean()
        return loss


TOPK = {"compression": "topk", "compression_ratio": 0.4}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "keep": ("local_sgd", {"sync_period": 2}),
    "average": (
        "local_sgd",
        {"sync_period": 2, "synchronous_steps": 2, "local_momentum": "average"},
    ),
    "changes": ("local_sgd", {"sync_period": 2, **TOPK}),
    "outer": ("diloco", {"sync_period": 2}),
    "outer, compressed": ("diloco", {"sync_period": 2, **TOPK}),
    "neighbours": ("gossip", {"sync_period": 2}),
    "drawn": ("federated", {"sync_period": 2}),
    "ring": ("ring", {}),
    "ring, compressed": ("ring", TOPK),
}
COPIES = {"keep": 4 / 3, "average": 8 / 3, "outer": 4 / 3, "neighbours": 2, "drawn": 1}
"""Trained parameters that a worker sends in a period, on average over the workers."""


def train(case: tuple[str, bool], rank: int) -> dict[str, Any]:
    name, is_complex = case
    sync, fields = CASES[name]
    workload = Turning(is_complex)
    point = Point(
        workers=WORKERS,
        micro_batch=2,
        sync=sync,
        optimizer="momentum",
        learning_rate=0.02,
        workload=workload,
        **fields,
    )
    job = Job(point=point, rank=rank, device=torch.device("cpu"), loss=workload.loss)
    loop = Loop(job, workload.build())
    mode, model = loop.mode, loop.model
    loop.run(point.first_steps)
    mode.begin_period(0)
    with Counting() as counting:
        loop.run(PERIODS * point.period)
    found = {
        "turn": real_view(model.get_parameter("turn")).clone(),
        "frozen": [model.get_parameter(name).detach().clone() for name in ("shift", "code")],
        "sent": (counting.bytes_sent or 0) / PERIODS,
        "expected": (mode.expected_bytes() or 0) * point.period,
    }
    mode.close()
    return found


Outcomes = list[dict[tuple[str, bool], dict[str, Any]]]


@pytest.fixture(scope="module")
def of_ranks() -> Outcomes:
    return results_by_case(train, itertools.product(CASES, (True, False)), workers=WORKERS)


@pytest.mark.parametrize("case", CASES)
def test_a_complex_parameter_trains_as_pairs_and_frozen_ones_stay_bit_for_bit(
    of_ranks: Outcomes, case: str
) -> None:
    start = real_view(Turned(is_complex=False).turn)
    for outcomes in of_ranks:
        shift, code = outcomes[case, True]["frozen"]
        assert (shift.tolist(), code.tolist()) == ([SHIFT] * 3, [CODE, 1])
        pairs = outcomes[case, False]["turn"]
        way = float((pairs - start).norm())
        assert way > 0.01
        assert float((outcomes[case, True]["turn"] - pairs).norm()) <= 1e-12 * way


@pytest.mark.parametrize("case", COPIES)
def test_frozen_parameters_are_not_sent(of_ranks: Outcomes, case: str) -> None:
    for is_complex in (True, False):
        found = [outcomes[case, is_complex] for outcomes in of_ranks]
        sent_bytes = pytest.approx(COPIES[case] * 8 * NUMBERS)
        assert [outcome["expected"] for outcome in found] == [sent_bytes] * WORKERS
        assert sum(outcome["sent"] for outcome in found) / WORKERS == sent_bytes
