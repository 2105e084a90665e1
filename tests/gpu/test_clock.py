"""The clock of a GPU, on a GPU: its ring of events can't be tried without one."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from dtsweep.measure.clock import CudaClock, clock_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and this machine has none"),
]

CYCLES = 2_000_000
"""Clock ticks of a GPU that a step keeps it busy: about a millisecond."""


def run_steps(clock: CudaClock, cycles: list[int]) -> float:
    """Queue steps of this many ticks, one mark each; return the seconds until all were queued."""
    clock.start()
    began = time.perf_counter()
    for ticks in cycles:
        torch.cuda._sleep(ticks)
        clock.mark("forward")
        clock.end_step()
    return time.perf_counter() - began


def cuda_clock() -> CudaClock:
    clock = clock_for(torch.device("cuda", 0))
    assert isinstance(clock, CudaClock)
    run_steps(clock, [CYCLES] * 3)
    clock.stop()
    return clock


@pytest.mark.parametrize("steps", [1, 2, 20, CudaClock.RING - 1, CudaClock.RING, 3 * CudaClock.RING])
def test_steps_add_up_to_the_window_however_many_there_are(steps: int) -> None:
    clock = cuda_clock()
    run_steps(clock, [CYCLES] * steps)
    window_s = clock.stop()
    times = clock.times()
    assert len(times["step_s"]) == len(times["start_s"]) == steps
    assert (times["step_s"] > 0).all()
    assert 0 <= window_s - times["step_s"].sum() <= 0.02 * window_s + 0.001
    assert np.allclose(times["start_s"], np.cumsum(times["step_s"]) - times["step_s"])


def test_a_step_has_the_time_that_the_device_needed_for_it() -> None:
    clock = cuda_clock()
    run_steps(clock, [CYCLES, 4 * CYCLES, 2 * CYCLES])
    clock.stop()
    one, four, two = clock.times()["step_s"]
    assert four / one == pytest.approx(4, rel=0.1)
    assert two / one == pytest.approx(2, rel=0.1)


def test_the_host_does_not_wait_for_the_steps_that_it_queues() -> None:
    clock = cuda_clock()
    queued_s = run_steps(clock, [10 * CYCLES] * 30)
    assert queued_s < 0.2 * clock.stop()


def test_a_host_that_is_a_whole_ring_ahead_waits_for_one_step_and_loses_none() -> None:
    clock = cuda_clock()
    steps = CudaClock.RING + 50
    queued_s = run_steps(clock, [CYCLES] * steps)
    window_s = clock.stop()
    # The first 50 steps at least had to end before the last could be queued.
    assert 0.1 * window_s < queued_s < window_s
    assert len(clock.times()["step_s"]) == steps


def test_phases_have_the_time_that_the_device_needed_for_them_and_add_up_to_the_step() -> None:
    clock = cuda_clock()
    clock.start()
    for _ in range(20):
        for phase, times in {"forward": 1, "backward": 3, "optimizer": 2}.items():
            torch.cuda._sleep(times * CYCLES)
            clock.mark(phase)
        clock.end_step()
    clock.stop()
    times = clock.times()
    phases = [times[f"{name}_s"] for name in ("forward", "backward", "optimizer")]
    assert set(times) == {"start_s", "step_s", "forward_s", "backward_s", "optimizer_s"}
    assert np.allclose(np.sum(phases, axis=0), times["step_s"])
    forward, backward, optimizer = (float(np.median(seconds)) for seconds in phases)
    assert backward / forward == pytest.approx(3, rel=0.1)
    assert optimizer / forward == pytest.approx(2, rel=0.1)


def test_steps_are_known_in_the_window_when_the_device_has_passed_them() -> None:
    clock = cuda_clock()
    run_steps(clock, [10 * CYCLES] * 20)
    assert len(clock.so_far()) < 20
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    clock.mark("forward")
    clock.end_step()
    assert 19 <= len(clock.so_far()) <= 21
    clock.stop()
    assert list(clock.so_far()) == list(clock.times()["step_s"])
    assert len(clock.so_far()) == 21


def test_a_device_that_is_less_than_a_step_behind_waits_for_its_host() -> None:
    clock = cuda_clock()
    run_steps(clock, [10 * CYCLES] * 50)
    clock.stop()
    assert clock.waited_for_host() < 0.1
    clock.start()
    for _ in range(50):
        clock.mark("forward")
        torch.cuda.synchronize()
        clock.end_step()
    clock.stop()
    assert clock.waited_for_host() == 1
