"""The end of the warm-up is found, and what is not steady is called so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtsweep.measure.statistics import is_bimodal
from dtsweep.measure.warmup import drift, is_spiky, spikes, steadiness, steady_from
from tests.rates import chance
from tests.series import drawn, warming_up

ONES = np.ones(100)


def kind(series: NDArray[np.float64], *, within: float = 0.02) -> str:
    return steadiness(series).kind(within=within)


@pytest.mark.parametrize("slow_steps", [0, 10])
def test_slow_first_steps_are_warm_up_and_the_rest_is_kept(slow_steps: int) -> None:
    # 0.1 and 0.7 are no binary fractions: their sums are rounded.
    for seconds in (1.0, 0.1, 0.7):
        series = np.concatenate([np.full(slow_steps, 2.0), np.ones(80)]) * seconds
        assert steady_from(series) == slow_steps
        assert kind(series) == ("warmup" if slow_steps else "flat")


@pytest.mark.parametrize("first", [1.25, 0.8])
def test_a_shift_of_the_level_is_no_warm_up_but_at_the_start(first: float) -> None:
    late, at_start = (np.append(np.full(steps, first), np.ones(160)) for steps in (40, 15))
    assert (steady_from(late), steady_from(at_start)) == (40, 15)
    assert (kind(late), kind(at_start)) == ("none", "warmup")
    assert steadiness(late).moves == pytest.approx(abs(first - 1))
    # As long, but it decays.
    decaying = np.append(np.linspace(first, 1.0, 40), np.ones(160))
    assert steadiness(decaying).shift == 0
    assert kind(decaying) == "warmup"


@pytest.mark.parametrize("odd", [1, 3])
def test_a_few_odd_steps_in_a_row_are_no_warm_up(odd: int) -> None:
    series = ONES.copy()
    series[5 : 5 + odd] = 9.0
    assert steady_from(series) == 0


def test_steps_that_get_faster_to_the_end_are_not_steady_yet() -> None:
    assert kind(np.linspace(2, 1, 100)) == "none"
    # Nor where they have done so once, but after the middle.
    late = np.append(np.full(55, 1.1), np.ones(45))
    assert steady_from(late) is None
    assert kind(late) == "none"


def test_steps_that_get_slower_to_the_end_are_a_slowdown() -> None:
    assert kind(np.linspace(1, 2, 100)) == "slowdown"
    noisy = drawn(1, 200, cv=0.02)[0] + np.linspace(0, 0.1, 200)
    # The best cut is late: no part is steady, whatever may count as a drift.
    assert kind(noisy) == kind(noisy[:150]) == "slowdown"


def test_the_search_is_by_five_steps_in_short_windows_by_two_and_from_eight_on() -> None:
    for size, steps in ((5, 40), (2, 39), (2, 8)):
        assert steady_from(np.array([9.0] * 2 * size + [1.0] * (steps - 2 * size))) == 2 * size
    assert steady_from(np.array([9.0] * 3 + [1.0] * 4)) == 0


@pytest.mark.parametrize("steps", [20, 120])
@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_what_is_stationary_is_seldom_called_anything_else(rho: float, steps: int) -> None:
    """`benchmarks/stopping.py` has the rates of many windows, and noise of other kinds."""
    series, most = drawn(100, steps, cv=0.05, rho=rho), 0.05 + chance(0.05, 100)
    # MSER alone leaves something out of most of these.
    assert np.mean([steady_from(one) != 0 for one in series]) <= most
    assert np.mean([steadiness(one).drifts(within=0.02) for one in series]) <= most
    assert np.mean([is_spiky(one) for one in series]) <= most
    assert np.mean([is_bimodal(one) for one in series]) <= most
    # The interval of a drift holds that there is none.
    rises = np.array([drift(one) for one in series])
    assert 0.95 - chance(0.95, 100) <= np.mean(np.abs(rises[:, 0]) <= rises[:, 1])


def test_a_window_inside_a_warm_up_is_seldom_called_steady() -> None:
    inside = warming_up(100, 30, slower=0.3, tau=30)
    assert np.mean([steadiness(one).drifts(within=0.02) for one in inside]) >= 0.95


def test_of_what_drifts_no_interval_is_known_and_a_little_drift_widens_it() -> None:
    rising = steadiness(np.linspace(1, 1.01, 100))
    assert (rising.start, rising.is_sure, rising.drift) == (
        0,
        True,
        pytest.approx(0.01 * 95 / 99 / 1.005),
    )
    assert rising.widen(0.004, within=0.02) == pytest.approx(0.004 + (rising.drift or 0.0))
    assert rising.widen(0.004, within=0.005) is None
    assert (rising.kind(within=0.02), rising.kind(within=0.005)) == ("flat", "slowdown")
    # A level that falls late is a cut that leaves too little, but of next to nothing: 5.5 of 1.005
    # between the halves.
    late = steadiness(np.append(np.full(55, 1.01), np.ones(45)))
    assert late.start is None
    assert late.widen(0.004, within=0.02) == pytest.approx(0.004 + late.unsettled)
    assert late.unsettled == pytest.approx(0.009, abs=0.0005)
    assert steadiness(np.append(np.full(55, 1.1), np.ones(45))).widen(0.004, within=0.02) is None
    assert steadiness(ONES).widen(0.004, within=0.02) == 0.004


def test_after_a_warm_up_less_of_a_drift_is_sure() -> None:
    series = drawn(1, 100, cv=0.02, seed=4)[0] - np.linspace(0, 0.01, 100)
    rise, noise = drift(series)
    assert 0.6 < -rise / noise < 1.75
    assert not steadiness(series).is_sure
    after = steadiness(np.append(np.full(20, 2.0), series))
    assert (after.start, after.is_sure) == (20, True)


@given(st.lists(st.floats(0.001, 10), min_size=3, max_size=200), st.sampled_from([1 / 1024, 64.0]))
def test_what_is_steady_is_at_least_half_and_does_not_depend_on_the_unit(
    times: list[float], unit: float
) -> None:
    series = np.array(times)
    start = steady_from(series)
    assert start is None or (
        start % (5 if len(times) >= 40 else 2) == 0 and start <= len(series) / 2
    )
    assert steady_from(series * unit) == start
    assert drift(series * unit) == pytest.approx(drift(series), abs=1e-12)
    assert list(spikes(series * unit)) == list(spikes(series))


def test_drift_is_the_rise_from_the_first_to_the_last_twentieth_by_the_median() -> None:
    # Twenty batches of 5 of 100 steps: from the third step to the third last are 95 of 99 parts of
    # the rise.
    rising = np.linspace(1, 1.1, 100)
    assert drift(rising) == pytest.approx((0.1 * 95 / 99 / 1.05, 0.0))
    assert drift(rising[::-1]) == pytest.approx((-0.1 * 95 / 99 / 1.05, 0.0))
    assert drift(np.array([1.0, 1.0, 1.0])) == (0, 0)


def test_a_few_odd_steps_do_not_move_the_drift() -> None:
    rising = np.linspace(1, 1.1, 100)
    rising[[3, 50, 51, 97, 99]] = 50.0
    assert drift(rising)[0] == pytest.approx(0.0914, abs=0.005)
    # Nor do two odd batches of twenty.
    assert drift(np.append(np.ones(90), np.full(10, 9.0)))[0] == 0


def test_spikes_are_steps_that_stand_out_from_their_neighbours() -> None:
    series = drawn(1, 200, cv=0.01)[0] + np.linspace(0, 0.5, 200)
    series[[20, 120]] += 0.3
    # The last steps are 50 % slower than the first, which is no spike.
    assert list(np.flatnonzero(spikes(series))) == [20, 120]
    assert list(spikes(np.array([1.0, 1.1, 0.9, 1.0, 5.0]))) == [False] * 4 + [True]
    assert not spikes(ONES).any()


def test_a_window_is_spiky_where_surely_more_than_one_step_in_a_hundred_is_a_spike() -> None:
    # With one in a hundred 4 or more come in 1.8 % of windows of 100 steps, 5 or more in 0.3 %; in
    # windows of 20 steps 2 or more in 1.7 %, 3 or more in 0.1 %.
    for steps, most in ((100, 4), (20, 2)):
        series = np.tile([1.0, 1.01], steps // 2)
        series[3 : 3 + 4 * most : 4] = 3.0
        assert not is_spiky(series)
        series[3 + 4 * most] = 3.0
        assert is_spiky(series)
