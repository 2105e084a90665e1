"""A slow rank's passes last longer by its factor, and waits for other ranks don't count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dtsweep.sweep.point import Point
from dtsweep.sync.pass_time import CpuPassTime, CudaPassTime, Untimed, pass_time_of
from tests.stand_in_stream import Machine, machine

__all__ = ["machine"]

CPU = torch.device("cpu")
LOSS = torch.zeros((), requires_grad=True) * 1


@dataclass
class Core:
    """A core's clock, which a busy wait moves on by a millisecond a look."""

    at: float = 0.0

    def __call__(self) -> float:
        self.at += 0.001
        return self.at


def passed(times: Any, core: Core, *, forward: float, backward: float) -> list[float]:
    """Run a pass; when forward ended, backward began and all ended, after the pass's begin."""
    began = core.at
    with times.forward():
        core.at += forward
    ends = [core.at]
    with times.backward(LOSS):
        ends.append(core.at)
        core.at += backward
    return [end - began for end in (*ends, core.at)]


@pytest.mark.parametrize("factor", [1.0, 1.5, 3.0])
def test_a_slow_rank_waits_after_forward_and_before_backward(factor: float) -> None:
    core = Core()
    times = CpuPassTime(factor=factor, now=core)
    ends = passed(times, core, forward=1, backward=9)
    assert ends == pytest.approx([factor, factor, factor + 9], abs=0.05)
    # Backward is as late as by the backward before it.
    ends = passed(times, core, forward=1, backward=2)
    assert ends == pytest.approx([factor, factor + (factor - 1) * 9, factor * 10 - 7], abs=0.05)
    ends = passed(times, core, forward=1, backward=2)
    assert ends[-1] == pytest.approx(3 * factor, abs=0.05)


def test_a_gpus_slow_rank_spins_before_backward_for_the_pass_before(machine: Machine) -> None:
    spun = list[int]()

    def spin(cycles: int) -> None:
        """On a clock of 1 GHz."""
        spun.append(cycles)
        machine.launch(cycles / 1e9)

    # Asked for, the device says twice its clock rate: the first wait corrects that.
    events: Any = {"make_event": machine.event, "spin": spin, "cycles_per_s": 2e9}
    times = CudaPassTime(torch.device("cuda", 0), factor=2, **events)
    for _ in range(4):
        with times.forward():
            machine.launch(0.001)
        loss = torch.zeros((), requires_grad=True) * 1
        with times.backward(loss):
            machine.launch(0.002)
            loss.backward()
            # As where the stream waits for other ranks at the end of DDP's backward.
            machine.launch(1)
        machine.synchronize()
    assert spun == [6_000_000, 3_000_000, 3_000_000]


def test_the_last_rank_alone_is_slow() -> None:
    def of(rank: int, **fields: Any) -> Any:
        return pass_time_of(Point(workers=2, **fields), rank, CPU)

    assert isinstance(of(0, slow_rank=2), Untimed)
    assert isinstance(of(1, slow_rank=2), CpuPassTime)
    assert isinstance(of(1), Untimed)
