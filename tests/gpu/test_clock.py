"""The clock of a GPU, on a GPU: its ring of events can't be tried without one."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from dtsweep.measure.clock import CudaClock, clock_for
from dtsweep.measure.device_idle import QueuedClock, idle_share, most_idle_share

pytestmark = pytest.mark.usefixtures("_warm_gpu")

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


@pytest.mark.parametrize(
    "steps", [1, 2, 20, CudaClock.RING - 1, CudaClock.RING, 3 * CudaClock.RING]
)
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


def test_the_host_does_not_wait_for_steps_while_they_take_less_than_a_fifth_of_a_second() -> None:
    clock = cuda_clock()
    # Twelve steps of about 10 ms.
    queued_s = run_steps(clock, [10 * CYCLES] * 12)
    assert queued_s < 0.3 * clock.stop()


def test_a_host_is_never_more_than_4_steps_ahead_where_they_take_time() -> None:
    clock = cuda_clock()
    clock.start()
    ends, known = [], []
    for _ in range(15):
        torch.cuda._sleep(100 * CYCLES)
        clock.mark("forward")
        clock.end_step()
        known.append(len(clock.so_far()))
        ends.append(time.perf_counter())
    window_s = clock.stop()
    assert all(count - steps <= CudaClock.AHEAD for count, steps in enumerate(known, start=1))
    # The last step was queued when the eleventh had ended.
    assert 10 / 15 * window_s < ends[-1] - clock.began < 0.8 * window_s
    assert clock.most_idle()["forward_s"][1:].sum() == 0
    assert clock.times()["step_s"].sum() == pytest.approx(window_s, rel=0.02)


def test_steps_that_follow_each_other_without_a_gap_do_so_though_the_host_waits() -> None:
    clock = cuda_clock()
    run_steps(clock, [100 * CYCLES] * 3)
    clock.stop()
    without_waiting_s = float(np.median(clock.times()["step_s"]))
    run_steps(clock, [100 * CYCLES] * 15)
    clock.stop()
    assert float(np.median(clock.times()["step_s"])) == pytest.approx(without_waiting_s, rel=0.01)


def test_a_host_that_is_a_whole_ring_ahead_waits_for_one_step_and_loses_none() -> None:
    clock = cuda_clock()
    # Steps of about 0.1 ms.
    steps = CudaClock.RING + 500
    queued_s = run_steps(clock, [CYCLES // 10] * steps)
    window_s = clock.stop()
    # The first 500 steps at least had to end before the last could be queued.
    assert 0.25 * window_s < queued_s < window_s
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
    run_steps(clock, [10 * CYCLES] * 10)
    assert len(clock.so_far()) < 10
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    clock.mark("forward")
    clock.end_step()
    assert 9 <= len(clock.so_far()) <= 11
    clock.stop()
    assert list(clock.so_far()) == list(clock.times()["step_s"])
    assert len(clock.so_far()) == 11


def test_a_device_with_a_full_queue_is_never_idle_and_one_that_waits_for_its_host_may_be() -> None:
    clock = cuda_clock()
    run_steps(clock, [10 * CYCLES] * 50)
    clock.stop()
    assert most_idle_share(clock.times(), clock.most_idle()) < 0.1
    clock.start()
    for _ in range(50):
        time.sleep(0.01)
        torch.cuda._sleep(CYCLES)
        clock.mark("forward")
        clock.end_step()
    clock.stop()
    assert most_idle_share(clock.times(), clock.most_idle()) > 0.8


def test_steps_that_are_queued_behind_a_pause_show_how_long_the_device_waited_for_launches() -> (
    None
):
    clock = cuda_clock()

    def step(mark: Callable[[str], None]) -> None:
        for _ in range(20):
            began = time.perf_counter()
            while time.perf_counter() - began < 2e-4:
                pass
            torch.cuda._sleep(CYCLES // 20)
        mark("forward")

    clock.start()
    for _ in range(50):
        step(clock.mark)
        clock.end_step()
    clock.stop()
    times = clock.times()
    queued = QueuedClock(torch.device("cuda", 0))
    for _ in range(5):
        step(queued.mark)
        queued.end_step()
    idle = idle_share(times, clock.most_idle(), *queued.queued())
    # 20 launches of 0.2 ms or more, of kernels that take about 0.05 ms.
    assert not idle.unknown
    assert 0.6 < idle.low < idle.high < 0.9
