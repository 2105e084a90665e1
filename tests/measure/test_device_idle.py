"""Idle time of a GPU: what is said of it holds what a stand-in of a GPU and its host really did."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtsweep.measure.clock import CudaClock
from dtsweep.measure.device_idle import (
    MORE_S,
    Idle,
    QueuedClock,
    idle_share,
    most_idle_share,
)
from tests.stand_in_stream import Machine, Step, kernels, machine

__all__ = ["machine"]

GPU = torch.device("cuda", 0)

STEPS = 7
PASSES = 8

STARVED = kernels(device_s=1e-5, host_s=4e-5)


def window(machine: Machine, step: Step, *, steps: int = 50) -> CudaClock:
    clock = CudaClock(GPU, machine.event, machine.now)
    clock.start()
    for _ in range(steps):
        step(machine, clock.mark)
        clock.end_step()
    clock.stop()
    return clock


def queued_steps(machine: Machine, step: Step) -> tuple[list[dict[str, float]], frozenset[str]]:
    queued = QueuedClock(GPU, pause=machine.launch, make_event=machine.event, now=machine.now)
    for _ in range(STEPS):
        step(machine, queued.mark)
        queued.end_step()
    return queued.queued()


def measured(machine: Machine, step: Step) -> tuple[Idle, float]:
    """What is measured of a step, and the share in which its device is really idle."""
    machine.synchronize()
    began, busy = machine.host, machine.busy
    clock = window(machine, step)
    idle = 1 - (machine.busy - busy) / (machine.host - began)
    times = clock.times()
    began_queueing = machine.host
    steps, waits_in = queued_steps(machine, step)
    marks = sum(1 for name in times if name.endswith("_s")) - 2
    # Three times the step at most, and a millisecond for each pause.
    most_s = 3 * STEPS * float(times["step_s"].mean()) + STEPS * marks * PASSES * MORE_S
    assert machine.host - began_queueing <= most_s
    return idle_share(times, clock.most_idle(), steps, waits_in), idle


@pytest.mark.parametrize(
    "busy",
    [
        # 100 ms of kernels in each step, launched in 3.5 ms, and one copy from pageable memory.
        kernels(device_s=0.1 / 60, host_s=3.5e-3 / 60, pageable_s=1e-4),
        kernels(device_s=4e-5, host_s=1e-5),
    ],
)
def test_a_busy_device_whose_batches_wait_for_it_is_not_idle(machine: Machine, busy: Step) -> None:
    clock = window(machine, busy)
    assert most_idle_share(clock.times(), clock.most_idle()) < 0.02


def test_a_device_that_runs_ahead_of_its_host_is_idle_for_what_launching_takes_longer(
    machine: Machine,
) -> None:
    idle, truth = measured(machine, STARVED)
    assert truth == pytest.approx(0.75, abs=0.01)
    assert (idle.low, idle.high) == pytest.approx((truth, truth), abs=0.02)
    assert idle.low <= truth + 1e-9
    assert not idle.unknown


def test_a_phase_that_waits_for_the_device_says_so_and_the_others_are_known(
    machine: Machine,
) -> None:
    waiting = kernels(device_s=1e-5, host_s=4e-5, waits_before="backward", pageable_s=1e-4)
    idle, truth = measured(machine, waiting)
    assert list(idle.unknown) == ["backward"]
    assert idle.low < truth < idle.high
    # Two of three phases, which are alike.
    assert idle.low == pytest.approx(2 / 3 * truth, abs=0.05)


def test_a_phase_with_more_kernels_than_the_queue_holds_is_unknown(machine: Machine) -> None:
    machine.queue_length = 1000
    idle, truth = measured(machine, kernels(device_s=1e-5, host_s=2e-5, each=1500))
    assert set(idle.unknown) == {"forward", "backward", "optimizer"}
    assert idle.low == 0
    assert idle.high >= truth


@pytest.mark.parametrize("waits", ["", "backward"])
def test_many_passes_with_more_kernels_than_the_queue_holds_take_no_longer(
    machine: Machine, waits: str
) -> None:
    machine.queue_length = 1024
    one_pass = kernels(device_s=2e-5, host_s=3e-5, each=90, waits_before=waits)

    def step(machine: Machine, mark: Callable[[str], None]) -> None:
        for _ in range(PASSES):
            one_pass(machine, mark)

    idle, truth = measured(machine, step)
    assert idle.low - 0.02 <= truth <= idle.high + 0.02
    assert set(idle.unknown) == {waits} - {""}


@settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    device_s=st.floats(1e-6, 1e-3),
    host_s=st.floats(1e-6, 1e-3),
    each=st.integers(1, 40),
    waits=st.sampled_from(["", "forward", "backward", "optimizer"]),
    pageable_s=st.sampled_from([0.0, 1e-4]),
)
def test_the_limits_hold_what_the_device_was_idle(
    machine: Machine, device_s: float, host_s: float, each: int, waits: str, pageable_s: float
) -> None:
    step = kernels(
        device_s=device_s, host_s=host_s, each=each, waits_before=waits, pageable_s=pageable_s
    )
    idle, truth = measured(machine, step)
    # The window begins with an empty queue, and what follows the last step is in no step.
    assert idle.low - 0.05 <= truth <= idle.high + 0.05
    assert 0 <= idle.low <= idle.high <= 1 + 1e-9


def test_one_hiccup_of_the_host_makes_no_phase_unknown(machine: Machine) -> None:
    numbers = itertools.count(1)

    def step(machine: Machine, mark: Callable[[str], None]) -> None:
        if next(numbers) == 54:
            machine.host += 0.1
        STARVED(machine, mark)

    clock = window(machine, step)
    steps, waits_in = queued_steps(machine, step)
    assert not waits_in
    assert len(steps) == STEPS - 3
    idle = idle_share(clock.times(), clock.most_idle(), steps, waits_in)
    assert idle.low == pytest.approx(0.75, abs=0.02)


def test_with_other_ranks_the_upper_limit_is_the_windows(machine: Machine) -> None:
    clock = window(machine, STARVED)
    times, most_idle = clock.times(), clock.most_idle()
    # Waiting for peers in queued steps makes them longer.
    slow = [{"forward": 1.0, "backward": 1.0, "optimizer": 1.0}] * 5
    idle = idle_share(times, most_idle, slow, frozenset(), has_peers=True)
    assert idle.low == 0
    assert idle.high == pytest.approx(most_idle_share(times, most_idle))
