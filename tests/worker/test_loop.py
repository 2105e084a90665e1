"""The timed loop on a mode that only counts, and what follows a window that is too long for it."""

from __future__ import annotations

import bdb
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed import HashStore

from dtsweep.measure.clock import Clock
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, MakeOptimizer, SyncMode
from dtsweep.worker.after_window import TurnError, time_exchange, together
from dtsweep.worker.loop import Loop


@dataclass(frozen=True)
class Numbers:
    """Its batch is the number of its first sample."""

    def build(self) -> nn.Module:
        raise AssertionError

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.tensor(samples.start)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        raise AssertionError


class Counting(SyncMode):
    """A step's loss is its number; keeps which of them exchanged."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        raise AssertionError

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> Tensor:
        self.exchanged = [*getattr(self, "exchanged", []), exchange]
        (batch,) = batches
        clock.mark("forward")
        return batch


@pytest.fixture
def loop() -> Loop:
    point = Point(micro_batch=1, workload=Numbers())
    job = Job(point=point, rank=0, device=torch.device("cpu"), loss=lambda model, batch: batch)
    return Loop(job, Counting(job))


def test_steps_that_lead_a_segment_are_taken_like_its_own_and_not_kept(loop: Loop) -> None:
    loop.run("window", range(2), lead=3)
    loop.run("no_exchange", range(4), blocks=(1, 2), lead=1)
    columns = loop.columns()
    assert columns["part"].tolist() == ["window"] * 2 + ["no_exchange"] * 4
    assert columns["block"].tolist() == [-1, -1, 1, 1, 2, 2]
    assert columns["step"].tolist() == list(range(6))
    # Of the window's steps the losses are kept: those of the fourth and fifth one.
    assert columns["loss"][:2].tolist() == [3, 4]
    assert loop.mode.exchanged == [True] * 5 + [False] * 5  # type: ignore[attr-defined]  # it is Counting
    # The lead lies between the segment's start and its first step.
    assert columns["start_s"][0] > 0
    ends = columns["start_s"] + columns["step_s"]
    assert columns["start_s"][[1, 3, 4, 5]] == pytest.approx(ends[[0, 2, 3, 4]], abs=1e-12)
    assert columns["forward_s"] == pytest.approx(columns["step_s"], abs=1e-12)


def test_a_warm_up_of_no_steps_has_no_rows(loop: Loop) -> None:
    loop.run("warmup", range(0))
    loop.run("window", range(2))
    assert loop.columns()["part"].tolist() == ["window"] * 2
    assert np.isfinite(loop.columns()["loss"]).all()


def test_whoever_leaves_the_debugger_in_a_step_after_the_window_ends_the_run() -> None:
    def leave() -> None:
        raise bdb.BdbQuit

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(bdb.BdbQuit):
        together(leave, store=None, patience_s=1.0)
    with pytest.raises(TurnError, match="on rank 0: ValueError: no"):
        together(fail, store=None, patience_s=1.0)


def test_steps_too_long_for_a_round_are_not_taken_and_the_reason_is_kept(loop: Loop) -> None:
    # 14 steps of 2 s are 28; a round may take 10 s where half of the window's limit is less.
    reason = time_exchange(loop, step_s=2.0, window_s=9.0, limit_s=5.0, store=HashStore(), known={})["exchange_reason"]
    assert reason.endswith("longer than the 10 s that they may take")
    assert loop.segments == []
