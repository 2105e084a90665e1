"""The rule that ends a window: when it looks, and what has to be seen."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtsweep.measure.statistics import reported_half_width
from dtsweep.measure.stopping import Rule, estimate
from dtsweep.measure.warmup import steadiness, steady_from
from dtsweep.sweep.settings import Measure
from tests.series import drawn, warming_up

ADAPTIVE = Measure(min_seconds=0, max_seconds=10_000)


def looks(rule: Rule, count: int) -> list[int]:
    steps = itertools.accumulate(range(count), lambda last, _: rule.next_look(last), initial=0)
    return list(steps)[1:]


def looked(rule: Rule, *series: NDArray[np.float64], seconds: float = 1.0) -> list[str | None]:
    """What one rule says at looks at which it sees these steps."""
    return [rule.look(one, seconds=seconds) for one in series]


# Looks


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # From 30 steps on, each look a fifth further; from 8 on where steps take long.
        (Rule(Measure()), [30, 36, 44, 52, 63, 75]),
        (Rule(Measure(), period_s=0.30), [30]),
        (Rule(Measure(), period_s=0.31), [8, 10, 12, 14, 17, 20]),
        # Multiples of the period, eight of them at least: 43.2 and 51.84 are 45 and 54.
        (Rule(Measure(), period=3), [30, 36, 45, 54]),
        (Rule(Measure(), period=10), [80, 100, 120, 140]),
        (Rule(Measure(), period=10, period_s=10), [80]),
    ],
)
def test_looks_are_ever_further_apart_and_at_whole_periods(rule: Rule, expected: list[int]) -> None:
    assert looks(rule, len(expected)) == expected


@given(
    st.integers(0, 2000),
    st.integers(1, 70),
    st.sampled_from([0.0, 1.0]),
)
def test_the_next_look_is_ahead_but_not_by_more_than_a_fifth_and_a_period(
    steps: int, period: int, period_s: float
) -> None:
    rule = Rule(Measure(), period=period, period_s=period_s)
    at = rule.next_look(steps)
    assert at > steps
    assert at % period == 0
    assert at <= max(rule.next_look(0), steps * 1.2 + period + 1)


# Sure enough


def test_what_is_rare_may_not_have_come_yet() -> None:
    # Short steps may take half as long again: 3 × 0.5 ÷ 75 is 2 %. Of steps of 2 s a pause is 0.19.
    short, long = np.full(100, 0.01), np.full(100, 2.0)
    assert looked(Rule(ADAPTIVE), short[:74], short[:75]) == [None, "precise"]
    assert looked(Rule(ADAPTIVE, period_s=2.0), long[:28], long[:29]) == [None, "precise"]


def test_the_half_width_is_a_share_of_the_mean() -> None:
    # Independent steps of 5 %: 1.97 × 0.05 ÷ √200 is 0.007, and 3 × 0.5 ÷ 200 too.
    series = drawn(1, 200, cv=0.05)[0]
    for unit in (0.1, 0.001):
        assert looked(Rule(Measure(half_width=0.02)), series * unit) == ["precise"]
        assert looked(Rule(Measure(half_width=0.008)), series * unit) == [None]


def test_a_window_that_is_sure_still_has_its_least_steps_and_seconds() -> None:
    few = Rule(Measure(half_width=0.05, min_steps=40, min_seconds=0))
    assert looked(few, np.ones(36), np.ones(39), np.ones(40)) == [None, None, "precise"]
    short = Rule(Measure(half_width=0.05, min_seconds=2))
    assert looked(short, np.ones(50), seconds=1.9) == [None]
    assert looked(short, np.ones(50), seconds=2.0) == ["precise"]


def test_twenty_steady_steps_are_the_least() -> None:
    # 19 steady ones after the warm-up are too few, 20 are enough; the search is by two steps in a
    # short window.
    loose, warm = Measure(half_width=0.3, min_seconds=0), np.full(12, 2.0)
    nineteen, twenty = (np.concatenate([warm, np.ones(count)]) for count in (19, 20))
    assert steady_from(nineteen) == steady_from(twenty) == 12
    assert looked(Rule(loose), nineteen, twenty) == [None, "precise"]
    # Of steps that take long 8.
    seven, eight = (np.concatenate([np.full(4, 2.0), np.ones(count)]) for count in (7, 8))
    assert steady_from(seven) == steady_from(eight) == 4
    patient = Measure(half_width=0.3, min_seconds=0, min_steps=1)
    assert looked(Rule(patient, period_s=1.0), seven, eight) == [None, "precise"]


def test_the_warm_up_is_left_out_of_what_must_be_precise() -> None:
    series = np.concatenate([np.linspace(2.0, 1.1, 30), np.ones(70)])
    assert looked(Rule(ADAPTIVE), series) == ["precise"]


def test_a_window_goes_on_after_a_shift_until_nine_tenths_of_it_are_steady() -> None:
    # Steps that are all 20 % longer don't settle: the level has shifted.
    shifted = np.concatenate([np.full(30, 1.2), np.ones(300)])
    assert looked(Rule(ADAPTIVE), shifted[:290], shifted) == [None, "precise"]


def test_a_window_goes_on_while_no_part_is_steady() -> None:
    # Less than half is faster than the rest, by less than the half-width.
    series = np.append(np.full(65, 1.015), np.ones(55))
    assert steady_from(series) is None
    assert looked(Rule(ADAPTIVE), series) == [None]


def test_a_window_goes_on_while_the_step_time_drifts_by_more_than_the_half_width() -> None:
    # Medians of 6 steps, of which every other is 3 % too long and the rest 3 % too short, show the
    # trend alone.
    alternating = 0.03 * (-1.0) ** np.arange(120)
    much, little = (1 + alternating + np.linspace(0, rise, 120) for rise in (0.03, 0.003))
    assert steady_from(much) == steady_from(little) == 0
    assert steadiness(much).is_sure
    assert looked(Rule(ADAPTIVE), much) == [None]
    assert looked(Rule(ADAPTIVE), little) == ["precise"]


def test_a_drift_that_noise_explains_stops_no_window() -> None:
    """`benchmarks/stopping.py` has the rates of many windows."""
    # Of 5 % noise the rise over 150 steps has a standard error of 1.8 %: in a fourth of the windows
    # it is over 2 %.
    series = drawn(60, 150, cv=0.05, seed=3)
    assert np.mean([abs(steadiness(one).drift or 0.0) > 0.02 for one in series]) > 0.1
    assert np.mean([looked(Rule(ADAPTIVE), one) == ["precise"] for one in series]) > 0.9


def test_a_look_and_a_row_have_one_interval() -> None:
    for series in (drawn(1, 200, cv=0.05)[0], warming_up(1, 200, slower=0.5, tau=5)[0]):
        known = estimate(series, 1)
        assert known is not None
        assert known.half_width_s == reported_half_width(series[steady_from(series) :])
    known = estimate(np.tile([1.0, 1.1, 3.0, 1.2], 40), 4)
    assert known is not None
    assert known.half_width_s == reported_half_width(np.full(40, 1.575), period=4)


def test_a_pattern_that_repeats_with_the_period_is_no_noise() -> None:
    # Every fourth step has an exchange and takes 3 s.
    series = np.array([1.0, 1.0, 1.0, 3.0] * 20)
    assert looked(Rule(ADAPTIVE, period=4), series) == ["precise"]
    assert looked(Rule(ADAPTIVE, period=1), series) == [None]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 14])
def test_a_few_steps_show_nothing(steps: int) -> None:
    for period in (1, 2):
        assert looked(Rule(ADAPTIVE, period=period), np.ones(steps)) == [None]


# Maxima, and fixed windows


def test_a_maximum_beats_a_minimum() -> None:
    few = {"min_steps": 9, "max_steps": 9}
    assert Rule(Measure(**few, max_seconds=1)).limit(steps=9, seconds=1) == "max_steps"
    assert Rule(Measure(**few, half_width=None)).limit(steps=9, seconds=9) == "max_steps"
    assert Rule(Measure(min_steps=50, max_seconds=3)).limit(steps=5, seconds=3) == "max_seconds"


@pytest.mark.parametrize(("period", "least"), [(1, 5), (3, 5), (8, 8)])
def test_max_seconds_waits_for_five_steps_or_a_period_but_no_longer_than_ten_minutes(
    period: int, least: int
) -> None:
    rule = Rule(Measure(max_seconds=1), period=period)
    assert rule.limit(steps=least - 1, seconds=599) is None
    assert rule.limit(steps=least - 1, seconds=600) == "max_seconds"
    assert rule.limit(steps=least, seconds=0.99) is None
    assert rule.limit(steps=least, seconds=1) == "max_seconds"
    assert Rule(Measure(max_seconds=900)).limit(steps=4, seconds=899) is None


def test_without_a_wanted_half_width_a_window_is_fixed() -> None:
    fixed = Rule(Measure(half_width=None, min_steps=9, min_seconds=1))
    assert fixed.limit(steps=8, seconds=5) is None
    assert fixed.limit(steps=9, seconds=0.5) is None
    assert fixed.limit(steps=9, seconds=1) == "enough"
    assert looked(fixed, np.ones(100)) == [None]
    # With one the minimum alone is not enough.
    assert Rule(Measure(min_steps=9, min_seconds=1)).limit(steps=9, seconds=1) is None


# Rehearsals


def test_a_rehearsal_takes_no_more_for_a_window_of_millions_of_steps() -> None:
    rule = Rule(Measure(min_steps=10**7, max_steps=10**8), period=10**5)
    tracemalloc.start()
    rule.rehearse()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 * 2**20


def test_after_a_rehearsal_a_look_imports_nothing() -> None:
    program = """
import sys
import numpy as np
from dtsweep.measure.stopping import Rule
from dtsweep.sweep.settings import Measure

rule = Rule(Measure(min_seconds=0))
begun = set(sys.modules)
rule.rehearse()
rehearsed = set(sys.modules)
rule.look(np.linspace(1, 1.01, 300), seconds=9)
assert len(rehearsed) > len(begun)
assert set(sys.modules) == rehearsed, set(sys.modules) - rehearsed
"""
    subprocess.run([sys.executable, "-c", program], check=True)
