"""Samples are dealt in proportion to speed, on real ranks whose speeds change."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, distributed, nn

from dtsweep import Measure, Point
from dtsweep.worker.timing import better_shares, shares_for
from tests.worker.on_ranks import Trials, run_trials

CPU = torch.device("cpu")
WORKERS, WARMUP, STEPS = 2, 5, 12
SAMPLE_S = 0.0008
"""What forward of a sample keeps a core busy, far above what else a pass takes."""

MEASURE = Measure(min_steps=STEPS, max_steps=STEPS, min_seconds=0, max_seconds=30, exchange="quick")


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


@pytest.fixture(scope="module")
def trials() -> Trials:
    usual = {"workers": WORKERS, "micro_batch": 6, "workload": Busy()}
    cases = {case: (MEASURE, Point(**{**usual, **fields})) for case, fields in CASES.items()}
    return run_trials(cases)


def shares_of(trials: Trials, case: str) -> list[int | None]:
    return [measured.samples_per_pass for measured in trials.measured(case)]


def test_passes_of_a_slow_rank_take_its_factor_longer_and_none_of_it_is_exchange(
    trials: Trials,
) -> None:
    row = trials.row("equal shares")
    assert (row["status"], row["implausible"]) == ("ok", None)
    assert shares_of(trials, "equal shares") == [6, 6]
    slow = trials.measured("equal shares")[1].of_part("forward_s")
    assert np.median(slow) >= 2 * 6 * SAMPLE_S
    assert row["straggler"] in (None, f"rank 1 on {trials.facts[1].node}")


def test_samples_are_dealt_by_the_speed_that_the_first_warm_up_shows(trials: Trials) -> None:
    row = trials.row("static")
    assert (row["status"], row["gradients_agree"]) == ("ok", True)
    assert shares_of(trials, "static") == [8, 4]
    assert row["global_batch"] == 12
    # Other work on the machine may have them dealt once more.
    (skipped,) = {m.skipped_steps for m in trials.measured("static")}
    assert skipped >= 2 * WARMUP


def test_equal_workers_keep_equal_shares(trials: Trials) -> None:
    assert shares_of(trials, "equal workers") == [6, 6]


def test_a_window_in_which_speeds_moved_is_measured_again_with_other_shares(trials: Trials) -> None:
    row = trials.row("moved")
    assert (row["status"], "unbalanced" in row["flags"]) == ("ok", False)
    assert shares_of(trials, "moved") == [9, 3]
    (skipped,) = {m.skipped_steps for m in trials.measured("moved")}
    assert skipped >= 2 * WARMUP + STEPS
    # Measured once, they stay as they were.
    assert shares_of(trials, "moved late") == [6, 6]


def test_a_workload_whose_batches_have_one_size_can_t_be_balanced(trials: Trials) -> None:
    for result in trials.results["one size"].values():
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
