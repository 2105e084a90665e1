"""Intervals hold what they say, and what the steps are too few for is unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.signal import lfilter

from dtsweep.measure.statistics import (
    autocorrelation,
    correlation_time,
    effective_count,
    is_bimodal,
    mean_half_width,
    over_periods,
    quantile_interval,
    reported_half_width,
    standard_error,
    step_times_together,
    steps_in,
)
from tests.series import drawn, series_folder


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.95), (0.5, 0.92), (0.8, 0.88)])
def test_the_interval_of_the_mean_covers_it_as_often_as_it_says(rho: float, least: float) -> None:
    launches = drawn(400, 200, cv=0.05, rho=rho)
    halves = np.array([mean_half_width(series) for series in launches])
    assert least <= np.mean(np.abs(launches.mean(axis=1) - 1) <= halves) <= 0.995


@pytest.mark.parametrize("p", [0.5, 0.9])
@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.5, 0.85)])
def test_the_interval_of_a_quantile_covers_it_as_often_as_it_says(
    rho: float, least: float, p: float
) -> None:
    truth = 1 + 0.05 * stats.norm.ppf(p)
    intervals = [
        quantile_interval(series, p) for series in drawn(400, 300, cv=0.05, rho=rho, seed=1)
    ]
    assert None not in intervals
    low, high = np.array(intervals, dtype=float).T
    assert least <= np.mean((low <= truth) & (truth <= high)) <= 0.995


def test_the_half_width_of_three_steps_is_students() -> None:
    # Standard deviation 1, and 2 degrees of freedom: 4.303 ÷ √3.
    assert mean_half_width(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.303 / np.sqrt(3), rel=1e-4)


def test_an_interval_that_the_steps_are_too_few_for_is_unknown() -> None:
    assert mean_half_width(np.array([1.0, 2.0])) is None
    assert reported_half_width(np.array([1.0, 2.0])) is None
    assert quantile_interval(np.array([1.0, 2.0]), 0.5) is None
    # For the median of independent steps 6 are the least: 2 × 0.5^5 > 5 % > 2 × 0.5^6.
    assert quantile_interval(np.array([1.0, 3.0, 2.0, 3.0, 1.0]), 0.5) is None
    assert quantile_interval(np.linspace(1, 2, 50), 0.99) is None


def test_an_interval_is_never_given_narrower_than_half_a_percent_of_the_mean() -> None:
    assert mean_half_width(np.full(20, 0.5)) == 0
    assert reported_half_width(np.full(2000, 0.5)) == 0.0025


def test_what_did_not_come_in_so_many_steps_may_come_in_three_of_them() -> None:
    # And then take half a step, or 0.38 s. Of steps that are all alike nothing else is unknown.
    for step_s, pause_s in ((0.02, 0.01), (0.76, 0.38), (2.0, 0.38)):
        assert reported_half_width(np.full(30, step_s)) == pytest.approx(3 / 30 * pause_s)
    # A pause may come in any step of a period.
    assert reported_half_width(np.full(30, 0.02), period=4) == pytest.approx(3 / 120 * 0.01)
    noisy = drawn(1, 30, cv=0.1)[0]
    assert reported_half_width(noisy) == pytest.approx(
        math.hypot(mean_half_width(noisy) or 0.0, 0.038)
    )


def test_correlated_steps_are_worth_fewer() -> None:
    independent, correlated = (drawn(1, 4000, cv=0.05, rho=rho)[0] for rho in (0.0, 0.8))
    assert autocorrelation(independent) == pytest.approx(0, abs=0.05)
    assert autocorrelation(correlated) == pytest.approx(0.8, abs=0.03)
    assert effective_count(independent) > 3500
    # (1 − 0.8) ÷ (1 + 0.8) of 4000 is 444.
    assert effective_count(correlated) == pytest.approx(444, rel=0.15)
    # Steps that alternate are worth no more than their number.
    assert effective_count(np.array([1.0, 3.0] * 50)) == 100


def test_a_slow_wave_makes_the_interval_as_wide_as_batches_differ() -> None:
    # Noise hides from neighbouring steps that the mean of 25 steps moves by 5 % up and down.
    wave = 1 + 0.05 * np.sign(np.sin(np.arange(200) / 25 * np.pi + 0.01))
    hidden = drawn(1, 200, cv=0.1)[0] + wave - 1
    independent = 1.97 * hidden.std(ddof=1) / np.sqrt(200)
    half = mean_half_width(hidden)
    assert half is not None
    # The means of 8 batches of 25 are ±0.05, or 0.053 apart from their mean: 2.365 × 0.053 ÷ √8 is
    # 0.045.
    assert half == pytest.approx(0.045, rel=0.25)
    assert half > 2 * independent


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 10), min_size=3, max_size=100))
def test_the_mean_is_never_known_better_than_by_independent_steps(times: list[float]) -> None:
    series = np.array(times)
    half = mean_half_width(series)
    assert half is not None
    students = stats.t.ppf(0.975, len(series) - 1) * series.std(ddof=1) / np.sqrt(len(series))
    assert half >= students * (1 - 1e-9)


def test_periods_are_averaged_whole_and_an_unfinished_one_is_left_out() -> None:
    assert list(over_periods(np.array([1.0, 1.0, 4.0, 1.0, 1.0, 7.0, 9.0]), 3)) == [2.0, 3.0]
    assert list(over_periods(np.array([1.0, 2.0]), 1)) == [1.0, 2.0]
    assert len(over_periods(np.array([1.0, 2.0]), 3)) == 0


def test_two_clusters_with_a_gap_are_bimodal_and_a_few_odd_steps_are_not() -> None:
    one, few = drawn(1, 100, cv=0.01)[0], drawn(1, 100, cv=0.01)[0]
    few[:5] += 0.5
    assert is_bimodal(np.array([1.0] * 10 + [2.0] * 10))
    assert is_bimodal(one + np.tile([0.0, 0.0, 0.0, 0.5], 25))
    # Nineteen steps are too few to say.
    nineteen = np.array([1.0] * 9 + [2.0] * 10)
    for series in (np.full(40, 0.1), np.linspace(1, 2, 100), few, nineteen):
        assert not is_bimodal(series)
    assert not any(is_bimodal(series) for series in drawn(50, 100, cv=0.05))


def contiguous(times: NDArray[np.float64], *, began: float = 0.0) -> NDArray[np.float64]:
    """Starts of steps that follow each other."""
    return began + np.cumsum(times) - times


def test_a_common_step_is_from_the_latest_end_to_the_latest_end() -> None:
    # Ends at 1 and 6 on one rank, at 2 and 5 on the other: 2, then 4 more.
    times = [np.array([1.0, 5.0]), np.array([2.0, 3.0])]
    assert list(step_times_together([contiguous(one) for one in times], times)) == [2.0, 4.0]


@settings(deadline=None)
@given(
    lengths=st.lists(
        st.lists(st.floats(0.001, 10), min_size=12, max_size=12), min_size=1, max_size=4
    ),
    period=st.sampled_from([1, 3, 4]),
    cut=st.integers(0, 2),
)
def test_common_steps_add_up_to_the_wall_however_their_ends_scatter(
    lengths: list[list[float]], period: int, cut: int
) -> None:
    times = [np.array(rank) for rank in lengths]
    starts = [contiguous(rank) for rank in times]
    left_out = cut * period
    steps = step_times_together(
        [s[left_out:] for s in starts], [t[left_out:] for t in times], period=period
    )
    wall = max(rank.sum() for rank in times) - max(rank[left_out] for rank in starts)
    assert len(steps) == (12 - left_out) // period
    assert steps.sum() * period == pytest.approx(wall)
    assert (steps >= 0).all()


def spiky_and_alike(random: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """Steps that resemble their neighbours, and a hundredth of them five times as long."""
    smooth = lfilter([1.0], [1.0, -0.9], random.normal(size=steps + 200) * np.sqrt(1 - 0.81))[200:]
    return np.asarray((1 + 0.03 * smooth) * np.where(random.random(steps) < 0.01, 5.0, 1.0))


def test_a_few_large_spikes_do_not_hide_from_the_median_that_steps_are_alike() -> None:
    random = np.random.default_rng(400)
    truth = float(np.median(spiky_and_alike(random, 200_000)))
    intervals = [quantile_interval(spiky_and_alike(random, 400), 0.5) for _ in range(100)]
    low, high = np.array([interval for interval in intervals if interval is not None]).T
    assert len(low) >= 98
    # By the lag of the values it would be 0.4 to 0.55.
    assert np.mean((low <= truth) & (truth <= high)) >= 0.85


def test_steps_are_worth_as_many_as_the_noise_says() -> None:
    # One and twice the sum of 0.8, 0.64, …: 9.
    for rho, expected in ((0.8, 9), (0.0, 1)):
        times = [correlation_time(series) for series in drawn(50, 2000, cv=0.05, rho=rho)]
        assert np.mean(times) == pytest.approx(expected, rel=0.1)
    assert correlation_time(np.full(5, 2.0)) == correlation_time(np.array([1.0])) == 1
    assert correlation_time(np.array([1.0, 3.0] * 50)) == 1


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_the_standard_error_is_neither_careful_nor_bold(rho: float) -> None:
    launches = drawn(400, 300, cv=0.05, rho=rho, seed=3)
    errors = np.array([standard_error(series) for series in launches])
    assert np.mean(errors**2) == pytest.approx(np.mean((launches.mean(axis=1) - 1) ** 2), rel=0.2)
    assert standard_error(np.array([1.0, 2.0])) is None


def test_a_step_under_way_counts_by_its_share() -> None:
    ends = np.array([1.0, 2.0, 4.0])
    steps = [steps_in(ends, seconds) for seconds in (0.0, 0.5, 2.0, 3.5, 4.0)]
    assert steps == [0.0, 0.5, 2.0, 2.75, 3.0]


@pytest.mark.parametrize(
    "name", ["launch_mlp384_b128_sync_1", "mlp512_b128_sync_r1", "mlp256_b64_nosync_r1"]
)
def test_intervals_of_real_steps_hold_what_they_are_of_and_are_neither_idle_nor_hopeless(
    name: str,
) -> None:
    series = np.load(series_folder() / f"{name}.npy")
    half = mean_half_width(series)
    assert half is not None
    # Wider than if steps were independent, at most a fifth of the mean.
    assert 1.9 * series.std(ddof=1) / np.sqrt(len(series)) <= half <= 0.2 * series.mean()
    interval = quantile_interval(series, 0.5)
    assert interval is not None
    assert interval[0] <= np.median(series) <= interval[1] <= 1.3 * interval[0]
