"""The timed loop on a mode that only counts, and what follows a window that is too long for it."""

from __future__ import annotations

import bdb
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Sweep
from dtsweep.measure.clock import Clock, CudaClock, StepClock
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.block_order import OrderError
from dtsweep.sync.mode import Job, MakeOptimizer, SyncMode
from dtsweep.worker.exchange_cost import WindowTime, time_exchange
from dtsweep.worker.idle_time import NO_STEPS, TOO_LONG, idle_in_window, queued_idle
from dtsweep.worker.in_step import StepError, together
from dtsweep.worker.loop import ModeLoop
from tests.outcomes import Tokens
from tests.stand_in_stream import Machine, kernels, machine

__all__ = ["machine"]


class Numbers(Tokens):
    """Its batch is the number of its first sample."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.tensor(samples.start)


class Counting(SyncMode):
    """A step's loss is its number; keeps which of them exchanged."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        raise AssertionError

    def step(self, batches: Iterator[Any], clock: Clock, without: Any = ()) -> Tensor:
        self.exchanged = [*getattr(self, "exchanged", []), not without]
        (batch,) = batches
        clock.mark("forward")
        return batch


@pytest.fixture
def loop() -> ModeLoop:
    point = Point(micro_batch=1, workload=Numbers())
    job = Job(point=point, rank=0, device=torch.device("cpu"), loss=lambda model, batch: batch)
    return ModeLoop(job, Counting(job))


def test_steps_that_lead_a_segment_are_taken_like_its_own_and_not_kept(loop: ModeLoop) -> None:
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


class OnDevice(SyncMode):
    """Steps of a stand-in GPU that takes a quarter of the time that its host launches for."""

    machine: Machine
    step_of = staticmethod(kernels(device_s=1e-5, host_s=4e-5))

    def step(self, batches: Iterator[Any], clock: StepClock, without: Any = ()) -> float:
        self.step_of(self.machine, clock.mark)
        return 0.0


OnGpu = Callable[..., dict[str, Any]]


@pytest.fixture
def on_gpu(loop: ModeLoop, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> OnGpu:
    """What a window on the stand-in tells of idle time, and the steps after it."""
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: machine.event())
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: machine.launch(cycles / 1e9))
    job = replace(loop.job, device=torch.device("cuda", 0))

    def idle(*, limits: Sequence[str] = (), sync: str = "ddp", **step: Any) -> dict[str, Any]:
        mode = OnDevice(job)
        mode.machine = machine
        mode.step_of = kernels(**step)
        on_device = ModeLoop(job, mode)
        on_device.clock = CudaClock(job.device, now=machine.now)
        on_device._batches = itertools.repeat(iter(()))
        on_device.run("window", range(50))
        task = task_of(Sweep(workload=Numbers(), axes={}), replace(job.point, sync=sync))
        window = WindowTime(window_s=1.0, steps=50, limits=limits)
        return {**idle_in_window(on_device), **queued_idle(on_device, task, window)}

    return idle


def test_a_gpus_idle_time_is_measured_after_the_window(on_gpu: OnGpu) -> None:
    found = on_gpu(device_s=1e-5, host_s=4e-5)
    assert found["device_idle_low"] == pytest.approx(0.75, abs=0.03)
    assert found["device_idle_high"] == pytest.approx(0.75, abs=0.03)
    assert found["device_idle_reason"] is None
    found = on_gpu(device_s=1e-5, host_s=4e-5, waits_before="backward")
    assert found["device_idle_low"] < 0.6 < found["device_idle_high"]
    assert found["device_idle_reason"].startswith("backward can't be queued ahead")
    found = on_gpu(device_s=1e-5, host_s=4e-5, waits_before="backward", limits=["SwPowerCap"])
    assert found["device_idle_low"] == 0 < found["device_idle_high"]
    assert "(SwPowerCap)" in found["device_idle_reason"]
    assert "backward can't be queued ahead" in found["device_idle_reason"]


def test_a_cpu_has_no_idle_time(loop: ModeLoop) -> None:
    loop.run("window", range(3))
    window = WindowTime(window_s=1.0, steps=50)
    assert idle_in_window(loop) == queued_idle(loop, task(loop, "quick"), window) == {}


def test_what_the_window_says_of_idle_time_stays_where_no_steps_are_queued(on_gpu: OnGpu) -> None:
    busy = on_gpu(device_s=4e-5, host_s=1e-6)
    assert busy["device_idle_low"] == 0 < busy["device_idle_high"] < 0.05
    assert busy["device_idle_reason"] is None
    slow = on_gpu(device_s=1e-3, host_s=1e-2)
    assert slow["device_idle_low"] == 0
    assert slow["device_idle_high"] > 0.9
    assert slow["device_idle_reason"] == TOO_LONG
    found = on_gpu(device_s=1e-5, host_s=4e-5, sync="parameter_server")
    assert found["device_idle_reason"] == NO_STEPS


def test_whoever_leaves_the_debugger_in_a_step_after_the_window_ends_the_run() -> None:
    def leave() -> None:
        raise bdb.BdbQuit

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(bdb.BdbQuit):
        together(leave, store=None, patience_s=1.0)
    with pytest.raises(StepError, match="on rank 0: ValueError: no"):
        together(fail, store=None, patience_s=1.0)


@pytest.mark.usefixtures("world_of_one")
def test_ranks_in_different_orders_are_no_step_that_fails_after_the_window() -> None:
    def part() -> None:
        raise OrderError("first on rank 0 a, on rank 1 b")

    with pytest.raises(OrderError):
        together(part, store=distributed.HashStore(), patience_s=1.0)


def task(loop: ModeLoop, exchange: Any) -> Task:
    sweep = Sweep(
        workload=Numbers(),
        axes={"workers": [1]},
        measure=Measure(exchange=exchange, max_seconds=10),
    )
    return task_of(sweep, loop.job.point)


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize("exchange", ["quick", "precise"])
def test_a_step_without_the_exchange_is_run_however_long_it_takes(
    loop: ModeLoop, exchange: str
) -> None:
    loop.run("window", range(5))
    # 14 steps of 2 s are no round of 10 s, and a quarter of 10 s is a step that leads the turn.
    window = WindowTime(window_s=10.0, steps=5)
    known = {"exchange_isolated_s": 1.0}
    assert time_exchange(loop, task(loop, exchange), window, spent_s=0.0, isolated=known) == known
    assert [segment.name for segment in loop.segments] == ["window", "no_exchange"]
    assert len(loop.segments[-1].losses) == 1


class WithoutMemory(Counting):
    """Has no memory for its exchange alone."""

    def exchange_alone(self) -> int:
        raise MemoryError("no memory for a second set of buckets")


@pytest.mark.usefixtures("world_of_one")
def test_without_memory_for_the_exchange_alone_steps_without_it_are_kept(loop: ModeLoop) -> None:
    loop.mode = WithoutMemory(loop.job)
    loop.run("window", range(40))
    found = time_exchange(
        loop, task(loop, "quick"), WindowTime(window_s=40.0, steps=40), spent_s=0.0, isolated={}
    )
    assert found == {}
    # A quarter of 40 steps is 10, of which one leads.
    assert len(loop.segments[-1].losses) in (8, 9)
    assert loop.mode.exchanged == [True] * 40 + [False] * (1 + len(loop.segments[-1].losses))
