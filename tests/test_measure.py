"""Clocks, windows and statistics; time is an argument, so nothing here waits."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch._C._distributed_c10d import HashStore, TCPStore

from dtsweep.measure.clock import PHASES, CpuClock
from dtsweep.measure.statistics import (
    effective_count,
    mean_half_width,
    quantile_interval,
    slowest_rank,
    steps_in,
)
from dtsweep.measure.window import Store, Window, stop_reason
from dtsweep.sweep import Measure

# Clocks


def ticking(*times: float) -> Callable[[], float]:
    return iter(times).__next__


def test_a_step_ends_where_the_next_begins_and_its_phases_add_up_to_it() -> None:
    clock = CpuClock(ticking(100, 101, 103, 106, 110, 111, 112, 114, 120))
    clock.start()
    for phases in (["data", "forward", "backward"], ["data", "forward", "data", "forward"]):
        for phase in phases:
            clock.mark(phase)
        clock.end_step()
    assert clock.stop() == 20
    times = clock.times()
    assert list(times["start_s"]) == [0, 6]
    assert list(times["step_s"]) == [6, 8]
    assert [list(times[name]) for name in ("data_s", "forward_s", "backward_s")] == [[1, 4 + 1], [2, 1 + 2], [3, 0]]


def test_a_phase_that_no_step_had_is_absent_and_one_that_some_had_is_zero_in_the_others() -> None:
    clock = CpuClock(ticking(0, 1, 2, 4, 4))
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.mark("forward")
    clock.mark("sync")
    clock.end_step()
    clock.stop()
    times = clock.times()
    assert set(times) == {"start_s", "step_s", "forward_s", "sync_s"}
    assert list(times["sync_s"]) == [0, 2]


@settings(deadline=None)
@given(
    steps=st.lists(
        st.lists(st.tuples(st.sampled_from(PHASES), st.integers(0, 1000)), min_size=1, max_size=8),
        min_size=1,
        max_size=9,
    )
)
def test_phases_make_up_steps_and_steps_make_up_the_window(steps: list[list[tuple[str, int]]]) -> None:
    readings = itertools.accumulate(seconds for step in steps for _, seconds in step)
    end = sum(seconds for step in steps for _, seconds in step)
    clock = CpuClock(ticking(0, *readings, end))
    clock.start()
    for step in steps:
        for phase, _ in step:
            clock.mark(phase)
        clock.end_step()
    assert clock.stop() == end
    times = clock.times()
    assert times["step_s"].sum() == end
    assert list(times["step_s"]) == [sum(seconds for _, seconds in step) for step in steps]
    measured = [times[f"{phase}_s"] for phase in PHASES if f"{phase}_s" in times]
    assert list(np.sum(measured, axis=0)) == list(times["step_s"])
    assert list(times["start_s"]) == [0, *np.cumsum(times["step_s"])[:-1]]


def test_a_clock_that_is_started_again_begins_anew_and_leaves_what_it_gave_alone() -> None:
    clock = CpuClock(ticking(0, 1, 1, 10, 14, 14))
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.stop()
    first = clock.times()
    clock.start()
    clock.mark("forward")
    clock.end_step()
    clock.stop()
    assert list(first["step_s"]) == [1]
    assert list(clock.times()["step_s"]) == [4]
    assert clock.began == 10


# When a window ends


class Seconds:
    """A clock of one rank that each step of a window moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run_window(
    measure: Measure,
    step_s: float | Callable[[int], float],
    *,
    period: int = 1,
    rank: int = 0,
    store: Store | None = None,
    expected_s: float = 0.0,
) -> Window:
    """Run a window whose steps take `step_s`; `expected_s` is what the warm-up said of a period."""
    seconds = Seconds()
    window = Window(measure, rank=rank, store=store, period_s=expected_s, period=period, now=seconds)
    for step in window:
        seconds.now += step_s(step) if callable(step_s) else step_s
    return window


def test_a_window_has_both_its_least_steps_and_its_least_seconds() -> None:
    short_steps = run_window(Measure(min_steps=5, min_seconds=1.0), 0.125)
    assert (short_steps.steps, short_steps.reason) == (8, "enough")
    long_steps = run_window(Measure(min_steps=5, min_seconds=1.0), 2.0)
    assert (long_steps.steps, long_steps.reason) == (5, "enough")


def test_a_maximum_beats_a_minimum() -> None:
    steps = run_window(Measure(min_steps=50, max_steps=7), 0.01)
    assert (steps.steps, steps.reason) == (7, "max_steps")
    seconds = run_window(Measure(min_steps=50, min_seconds=9.0, max_seconds=3.0), 1.0)
    assert (seconds.steps, seconds.reason) == (3, "max_seconds")
    assert stop_reason(Measure(min_steps=9, max_steps=9, max_seconds=1), steps=9, seconds=1) == "max_steps"
    assert stop_reason(Measure(min_steps=9, min_seconds=1), steps=8, seconds=5) is None
    assert stop_reason(Measure(min_steps=9, min_seconds=1), steps=9, seconds=0.5) is None


def test_a_window_is_a_multiple_of_the_sync_period_and_at_most_the_maximum() -> None:
    assert run_window(Measure(min_steps=10, min_seconds=0), 0.01, period=8).steps == 16
    assert run_window(Measure(min_steps=1, min_seconds=9, max_steps=20), 0.01, period=8).steps == 16


@pytest.mark.parametrize("limits", [Measure(max_steps=3), Measure(max_seconds=0.5)])
def test_one_full_sync_period_is_measured_whatever_the_maximum(limits: Measure) -> None:
    window = run_window(limits, 1.0, period=8)
    assert (window.steps, window.reason[:4]) == (8, "max_")


def test_a_window_has_a_step_even_if_no_time_is_allowed() -> None:
    assert run_window(Measure(max_seconds=0), 0.01).steps == 1


@settings(deadline=None)
@given(
    period=st.integers(1, 12),
    step_s=st.floats(1e-4, 30),
    guess=st.floats(0.2, 5),
    limits=st.builds(
        Measure,
        min_steps=st.integers(1, 200),
        min_seconds=st.floats(0, 20),
        max_steps=st.integers(1, 300),
        max_seconds=st.floats(0, 60),
    ),
)
def test_with_ranks_in_step_a_window_overruns_its_limits_by_two_looks_at_most(
    period: int, step_s: float, guess: float, limits: Measure
) -> None:
    period_s = step_s * period
    window = run_window(limits, step_s, period=period, store=HashStore(), expected_s=period_s * guess)
    assert window.steps % period == 0
    assert period <= window.steps <= max(period, limits.max_steps)
    # Looks are 0.2 s apart or a period, if the warm-up guessed the period well; the guess may be off.
    overrun = 2 * max(0.2 / guess, period_s) + period_s
    assert window.steps * step_s <= limits.max_seconds + overrun + 1e-6
    if window.reason == "enough":
        assert window.steps >= limits.min_steps
        assert window.steps * step_s >= limits.min_seconds - 1e-6


@pytest.mark.parametrize("limits", [Measure(max_seconds=5), Measure(min_steps=20, min_seconds=1.0)])
def test_without_a_warm_up_the_limits_hold_all_the_same(limits: Measure) -> None:
    window = run_window(limits, 0.5, store=HashStore(), expected_s=0.0)
    assert window.steps <= 22


@pytest.fixture(params=["hash", "tcp"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[Store]]:
    """For each of three ranks its own way to one shared store."""
    patience = timedelta(seconds=20)
    if request.param == "hash":
        yield [HashStore()] * 3
        return
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=patience)
    others = [TCPStore("127.0.0.1", server.port, is_master=False, timeout=patience) for _ in range(2)]
    yield [server, *others]


@pytest.mark.parametrize("period", [1, 4])
@pytest.mark.parametrize(
    "limits", [Measure(min_steps=30, min_seconds=0.3), Measure(max_seconds=0.7), Measure(max_steps=9)]
)
def test_ranks_stop_at_the_same_step_though_their_clocks_differ(
    stores: list[Store], limits: Measure, period: int
) -> None:
    windows: dict[int, Window] = {}

    def work(rank: int) -> None:
        # No barrier between steps: ranks even run apart as far as the looks let them.
        windows[rank] = run_window(
            limits, 0.01 * (1 + rank), period=period, rank=rank, store=stores[rank], expected_s=0.02 * period
        )

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(windows) == 3
    assert len({window.steps for window in windows.values()}) == 1
    assert windows[0].steps % period == 0
    assert all(window.reason for window in windows.values())


def test_rank_0_forgets_the_keys_of_its_window() -> None:
    store = HashStore()
    before = store.num_keys()
    window = run_window(Measure(min_steps=40, min_seconds=0), 0.1, store=store, expected_s=0.1)
    assert store.num_keys() > before
    window.forget()
    assert store.num_keys() == before


# Statistics


def autoregressive(random: np.random.Generator, *, steps: int, rho: float) -> NDArray[np.float64]:
    """Step times of mean 1 s, each of which remembers `rho` of the one before."""
    noise = random.normal(size=steps)
    series = np.empty(steps)
    series[0] = noise[0]
    for index in range(1, steps):
        series[index] = rho * series[index - 1] + np.sqrt(1 - rho**2) * noise[index]
    return 1 + 0.05 * series


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.5, 0.88), (0.8, 0.80)])
def test_the_interval_of_the_mean_covers_it_as_often_as_it_says(rho: float, least: float) -> None:
    random = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        series = autoregressive(random, steps=200, rho=rho)
        half = mean_half_width(series)
        assert half is not None
        hits.append(abs(series.mean() - 1) <= half)
    assert least <= np.mean(hits) <= 0.99


@pytest.mark.parametrize("p", [0.5, 0.9])
@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.5, 0.85)])
def test_the_interval_of_a_quantile_covers_it_as_often_as_it_says(rho: float, least: float, p: float) -> None:
    random = np.random.default_rng(1)
    truth = {0.5: 1.0, 0.9: 1 + 0.05 * 1.2815515655446004}[p]
    hits = []
    for _ in range(400):
        interval = quantile_interval(autoregressive(random, steps=300, rho=rho), p)
        assert interval is not None
        hits.append(interval[0] <= truth <= interval[1])
    assert least <= np.mean(hits) <= 0.995


def test_an_interval_that_the_steps_are_too_few_for_is_unknown() -> None:
    assert mean_half_width(np.array([1.0, 2.0])) is None
    assert quantile_interval(np.array([1.0, 2.0]), 0.5) is None
    # For the median of independent steps 6 are the least: 2 × 0.5^5 > 5 % > 2 × 0.5^6.
    assert quantile_interval(np.array([1.0, 3.0, 2.0, 3.0, 1.0]), 0.5) is None
    assert quantile_interval(np.linspace(1, 2, 50), 0.99) is None


def test_correlated_steps_are_worth_fewer_and_equal_ones_have_a_mean_without_doubt() -> None:
    random = np.random.default_rng(2)
    independent, correlated = (autoregressive(random, steps=2000, rho=rho) for rho in (0.0, 0.8))
    assert effective_count(independent) > 1700
    # (1 − 0.8) ÷ (1 + 0.8) of 2000 is 222.
    assert effective_count(correlated) == pytest.approx(222, rel=0.25)
    assert mean_half_width(np.full(20, 0.5)) == 0


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 10), min_size=3, max_size=60), st.sampled_from([0.1, 0.5, 0.9]))
def test_a_quantile_lies_in_its_interval(times: list[float], p: float) -> None:
    series = np.array(times)
    interval = quantile_interval(series, p)
    if interval is not None:
        low, high = interval
        assert low <= np.quantile(series, p, method="higher")
        assert np.quantile(series, p, method="lower") <= high
        assert {low, high} <= set(times)


def test_the_step_time_of_a_synchronous_trial_is_that_of_its_slowest_rank() -> None:
    assert list(slowest_rank([np.array([1.0, 5.0]), np.array([2.0, 3.0])])) == [2.0, 5.0]


def test_a_step_under_way_counts_by_its_share() -> None:
    ends = np.array([1.0, 2.0, 4.0])
    assert [steps_in(ends, seconds) for seconds in (0.0, 0.5, 2.0, 3.5, 4.0)] == [0.0, 0.5, 2.0, 2.75, 3.0]


def series_folder() -> Path:
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    if not folder.is_dir():
        pytest.skip("DTSWEEP_TEST_DATA names no folder with step_series")
    return folder


@pytest.mark.parametrize("name", ["launch_mlp384_b128_sync_1", "mlp512_b128_sync_r1", "mlp256_b64_nosync_r1"])
def test_intervals_of_real_steps_hold_what_they_are_of_and_are_neither_idle_nor_hopeless(name: str) -> None:
    series = np.load(series_folder() / f"{name}.npy")
    half = mean_half_width(series)
    assert half is not None
    # Wider than if steps were independent, at most a fifth of the mean.
    assert 1.9 * series.std(ddof=1) / np.sqrt(len(series)) <= half <= 0.2 * series.mean()
    interval = quantile_interval(series, 0.5)
    assert interval is not None
    assert interval[0] <= np.median(series) <= interval[1] <= 1.3 * interval[0]


def test_launches_of_one_job_differ_by_more_than_their_own_intervals_say() -> None:
    launches = [np.load(path) for path in sorted(series_folder().glob("launch_*.npy"))]
    means = np.array([series.mean() for series in launches])
    halves = [mean_half_width(series) for series in launches]
    inside = [half is not None and abs(m - means.mean()) <= half for m, half in zip(means, halves, strict=True)]
    # Why repeats are launches: within one, a long window can't see this.
    assert np.mean(inside) < 0.95
