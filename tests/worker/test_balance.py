"""Samples are dealt in proportion to speed, on real ranks whose speeds change."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, distributed, nn

from dtsweep import Measure, Point, Sweep
from dtsweep.metrics.rank_result import Measured, RankResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.sweep.task import task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import become_rank
from dtsweep.worker.timing import better_shares, shares_for
from tests.ranks import free_ports, join, leave, spawn

CPU = torch.device("cpu")
WORKERS, WARMUP, STEPS = 2, 5, 12
SAMPLE_S = 0.0008
"""What forward of a sample keeps a core busy, far above what else a pass takes."""

MEASURE = Measure(
    min_steps=STEPS, max_steps=STEPS, min_seconds=0, max_seconds=30, exchange="quick", check=True
)


@dataclass(frozen=True)
class Busy:
    """A line through points, whose loss keeps its core busy for each sample.

    From a call on the last rank's does so three times as long.
    """

    slow_from: int = 10**9
    calls: ClassVar[list[int]] = []

    def build(self) -> nn.Module:
        self.calls.clear()
        return nn.Linear(1, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.arange(samples.start, samples.stop, dtype=torch.float32)[:, None] / 100

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        self.calls.append(len(batch))
        ends = time.thread_time() + len(batch) * SAMPLE_S * self._factor()
        while time.thread_time() < ends:
            pass
        loss: Tensor = (model(batch) - batch).square().mean()
        return loss

    def _factor(self) -> int:
        is_slow = len(self.calls) > self.slow_from and distributed.get_rank() == WORKERS - 1
        return 3 if is_slow else 1


@dataclass(frozen=True)
class Fixed(Busy):
    """A workload whose batches have one size."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return super().batch(range(samples.start, samples.start + 6), device)


CASES: dict[str, dict[str, Any]] = {
    "equal shares": {"slow_rank": 2.0},
    "static": {"slow_rank": 2.0, "balance": "static"},
    "equal workers": {"balance": "static", "sync": "ring"},
    "moved": {"balance": "dynamic", "workload": Busy(slow_from=8)},
    "moved late": {"balance": "static", "workload": Busy(slow_from=8)},
    "one size": {"balance": "static", "workload": Fixed()},
}


def point_of(case: str) -> Point:
    return Point(**{"workers": WORKERS, "micro_batch": 6, "workload": Busy(), **CASES[case]})


def sweep_of(case: str) -> Sweep:
    workload = point_of(case).workload
    return Sweep(workload=workload, axes={"workers": [WORKERS]}, measure=MEASURE)


def measure_all(rank: int, folder: Path, port: int) -> None:
    join(rank, workers=WORKERS, port=port)
    context = become_rank(rank, CPU, workload=None, own_variables=())
    results = {}
    for case in CASES:
        point = point_of(case)
        task = replace(task_of(sweep_of(case), point), attempt_id=case.replace(" ", ""))
        results[case] = run_attempt(replace(context, workload=point.workload), task)
    torch.save((context.facts, results), folder / f"{rank}.pt")
    leave()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("balance")
    spawn(measure_all, args=(folder, *free_ports(1)), nprocs=WORKERS)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORKERS)]


def row_of(ranks: list[Any], case: str) -> dict[str, Any]:
    facts = {rank: of_rank for rank, (of_rank, _) in enumerate(ranks)}
    results: dict[int, RankResult] = {rank: own[case] for rank, (_, own) in enumerate(ranks)}
    point, sweep = point_of(case), sweep_of(case)
    marked = with_warmup_marked(point, results)
    return trial_row(sweep, point, task_of(sweep, point), facts, marked)


def measured_of(ranks: list[Any], case: str) -> list[Measured]:
    return [own[case].measured for _, own in ranks]


def shares_of(ranks: list[Any], case: str) -> list[int | None]:
    return [measured.samples_per_pass for measured in measured_of(ranks, case)]


def test_passes_of_a_slow_rank_take_its_factor_longer_and_none_of_it_is_exchange(
    ranks: list[Any],
) -> None:
    row = row_of(ranks, "equal shares")
    assert (row["status"], row["implausible"]) == ("ok", None)
    assert shares_of(ranks, "equal shares") == [6, 6]
    fast, slow = (np.median(m.of_part("forward_s")) for m in measured_of(ranks, "equal shares"))
    assert slow >= 2 * 6 * SAMPLE_S
    assert fast < slow
    assert row["straggler"] in (None, f"rank 1 on {ranks[1][0].node}")


def test_samples_are_dealt_by_the_speed_that_the_first_warm_up_shows(ranks: list[Any]) -> None:
    row = row_of(ranks, "static")
    assert (row["status"], row["gradients_agree"]) == ("ok", True)
    assert row["gradient_error"] < 1e-5
    assert shares_of(ranks, "static") == [8, 4]
    assert row["global_batch"] == 12
    assert [m.skipped_steps for m in measured_of(ranks, "static")] == [2 * WARMUP] * WORKERS


def test_equal_workers_keep_equal_shares(ranks: list[Any]) -> None:
    assert shares_of(ranks, "equal workers") == [6, 6]


def test_a_window_in_which_speeds_moved_is_measured_again_with_other_shares(
    ranks: list[Any],
) -> None:
    row = row_of(ranks, "moved")
    assert (row["status"], "unbalanced" in row["flags"]) == ("ok", False)
    assert shares_of(ranks, "moved") == [9, 3]
    assert {m.skipped_steps for m in measured_of(ranks, "moved")} == {2 * WARMUP + STEPS}
    # Measured once, they stay as they were.
    assert shares_of(ranks, "moved late") == [6, 6]


def test_a_workload_whose_batches_have_one_size_can_t_be_balanced(ranks: list[Any]) -> None:
    for _, own in ranks:
        result = own["one size"]
        assert result.status == "user_error"
        assert "6 samples where balance=static asked for 7; give len(samples)" in result.reason
        assert "or leave balance out" in result.reason


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9).flatmap(
        lambda speeds: st.tuples(st.just(speeds), st.integers(len(speeds), 500))
    )
)
def test_shares_are_whole_and_near_the_proportion(case: tuple[list[float], int]) -> None:
    speeds, total = case
    shares = np.array(shares_for(speeds, total))
    quotas = np.array(speeds) / sum(speeds) * total
    assert shares.sum() == total
    assert shares.min() >= 1
    if quotas.min() >= 1:
        assert np.abs(shares - quotas).max() < 1


def test_shares_change_only_where_passes_get_shorter_by_more_than_noise() -> None:
    assert better_shares([16, 16], [1.0, 1.05]) is None
    assert better_shares([21, 11], [1.0, 1.0]) is None
    # Of 2 samples none can move.
    assert better_shares([1, 1], [1.0, 3.0]) is None
    assert better_shares([21, 11], [0.5, 1.0]) == [25, 7]
    # A rank had no pass.
    assert better_shares([16, 16], [1.0, 0.0]) is None
