"""The end of the warm-up is found, and what is not steady is called so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.measure.warmup import drift, spikes, steady_class, steady_from
from tests.series import drawn, warming_up

ONES = np.ones(100)


def test_slow_first_steps_are_warm_up_and_the_rest_is_kept() -> None:
    series = np.concatenate([np.full(20, 2.0), np.ones(80)])
    assert steady_from(series) == 20
    assert steady_class(series, within=0.02) == "warmup"


@pytest.mark.parametrize("seconds", [1.0, 0.1, 0.7])
def test_equal_steps_have_no_warm_up_whatever_their_length(seconds: float) -> None:
    # 0.1 and 0.7 are no binary fractions: their sums are rounded.
    assert [steady_from(ONES[:steps] * seconds) for steps in (20, 37, 100)] == [0, 0, 0]
    assert steady_class(ONES * seconds, within=0.02) == "flat"


@pytest.mark.parametrize("odd", [1, 3])
def test_a_few_odd_steps_in_a_row_are_no_warm_up(odd: int) -> None:
    series = ONES.copy()
    series[5 : 5 + odd] = 9.0
    assert steady_from(series) == 0


def test_steps_that_get_faster_to_the_end_have_no_steady_part_yet() -> None:
    falling = np.linspace(2, 1, 100)
    assert steady_from(falling) is None
    assert steady_class(falling, within=0.02) == "none"


def test_steps_that_get_slower_to_the_end_are_a_slowdown() -> None:
    assert steady_class(np.linspace(1, 2, 100), within=0.02) == "slowdown"
    noisy = drawn(1, 200, cv=0.02)[0] + np.linspace(0, 0.1, 200)
    assert steady_class(noisy, within=0.02) == "slowdown"
    assert steady_class(noisy, within=0.20) != "slowdown"


def test_under_twenty_steps_there_is_nothing_to_search_in() -> None:
    series = np.array([9.0] * 5 + [1.0] * 14)
    assert steady_from(series) == 0
    assert steady_from(np.append(series, 1.0)) == 5


@given(st.lists(st.floats(0.001, 10), min_size=3, max_size=200), st.sampled_from([1 / 1024, 64.0]))
def test_what_is_steady_is_at_least_half_and_does_not_depend_on_the_unit(times: list[float], unit: float) -> None:
    series = np.array(times)
    start = steady_from(series)
    assert start is None or (start % 5 == 0 and start <= len(series) / 2)
    assert steady_from(series * unit) == start
    assert drift(series * unit) == pytest.approx(drift(series))
    assert list(spikes(series * unit)) == list(spikes(series))


def test_the_mean_of_what_is_left_is_right_where_the_whole_is_off_by_5_percent() -> None:
    # 0.5 × 10 steps of warm-up over 100 steps are 5 %.
    series = warming_up(200, 100, slower=0.5, tau=10)
    assert series.mean() == pytest.approx(1.05, abs=0.003)
    starts = [steady_from(one) for one in series]
    means = np.array([one[start:].mean() for one, start in zip(series, starts, strict=True) if start is not None])
    # Where it seems to take more than half of the steps there is no mean yet.
    assert len(means) > 150
    assert np.mean(np.abs(means - 1) <= 0.02) > 0.95


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_where_there_is_no_warm_up_most_steps_are_kept(rho: float) -> None:
    starts = [steady_from(one) for one in drawn(200, 100, cv=0.05, rho=rho)]
    assert np.median([100 if start is None else start for start in starts]) <= 10
    assert np.mean([start is None for start in starts]) < 0.2


def test_drift_is_the_rise_from_the_first_to_the_last_twentieth_by_the_median() -> None:
    # Twenty batches of 5 of 100 steps: from the third step to the third last are 95 of 99 parts of the rise.
    rising = np.linspace(1, 1.1, 100)
    assert drift(rising) == pytest.approx(0.1 * 95 / 99 / 1.05)
    assert drift(rising[::-1]) == pytest.approx(-0.1 * 95 / 99 / 1.05)
    assert drift(np.array([1.0, 1.0, 1.0])) == 0


def test_a_few_odd_steps_do_not_move_the_drift() -> None:
    rising = np.linspace(1, 1.1, 100)
    rising[[3, 50, 51, 97, 99]] = 50.0
    assert drift(rising) == pytest.approx(0.0914, abs=0.005)
    # Nor do two odd batches of twenty.
    assert drift(np.append(np.ones(90), np.full(10, 9.0))) == 0


def test_spikes_are_steps_that_stand_out_from_their_neighbours() -> None:
    series = drawn(1, 200, cv=0.01)[0] + np.linspace(0, 0.5, 200)
    series[[20, 120]] += 0.3
    # The last steps are 50 % slower than the first, which is no spike.
    assert list(np.flatnonzero(spikes(series))) == [20, 120]
    assert list(spikes(np.array([1.0, 1.1, 0.9, 1.0, 5.0]))) == [False] * 4 + [True]
    assert not spikes(ONES).any()
