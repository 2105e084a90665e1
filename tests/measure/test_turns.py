"""Steps with and without the exchange in turns: their order, how many, and what they tell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.measure.turns import (
    FIRST_ROUND_S,
    KNOWN,
    LEAD,
    PAIRS,
    block_steps,
    by_pair,
    is_known,
    share_of,
    turns,
)
from tests.series import drawn


def kinds(rounds: int) -> list[bool]:
    """True if each block exchanges, in the order of their numbers."""
    known = {
        block: turn.exchanges
        for number in range(rounds)
        for turn in turns(number)
        for block in turn.blocks
    }
    assert list(known) == list(range(2 * PAIRS * rounds))
    return list(known.values())


def test_blocks_with_and_without_the_exchange_take_turns() -> None:
    assert kinds(3) == [True, False, False, True] * 6
    assert [len(turn.blocks) for turn in turns(1)] == [1, 2, 2, 2, 1]


@given(st.integers(1, 9))
def test_a_step_time_that_rises_evenly_changes_the_difference_by_nothing(rounds: int) -> None:
    exchanges = np.array(kinds(rounds))
    rising = np.arange(float(len(exchanges)))
    with_exchange, without = by_pair(rising)
    assert with_exchange.tolist() == rising[exchanges].tolist()
    assert without.tolist() == rising[~exchanges].tolist()
    assert with_exchange.sum() == without.sum()


def test_a_block_is_as_many_steps_as_take_20_ms_and_one_where_they_are_longer() -> None:
    assert [block_steps(step_s, limit_s=30) for step_s in (0.001, 0.008, 0.02, 0.5)] == [
        20,
        3,
        1,
        1,
    ]
    assert [block_steps(step_s, limit_s=30, least=3) for step_s in (0.001, 0.008, 0.02, 0.5)] == [
        20,
        3,
        3,
        3,
    ]


def test_a_round_of_blocks_is_no_longer_than_a_short_window_but_for_what_a_step_each_takes() -> (
    None
):
    assert [
        block_steps(0.001, limit_s=30, window_s=window_s) for window_s in (10, 0.16, 0.04, 0.005)
    ] == [20, 20, 5, 1]
    assert block_steps(0.001, limit_s=30, least=3, window_s=0.005) == 3


def test_of_long_steps_there_are_as_many_as_fit_and_none_where_a_round_does_not() -> None:
    # 8 blocks of a step, 5 before them, and the one that shows whether memory suffices: 14 steps of
    # 2 s take 28.
    assert block_steps(2.0, limit_s=30) == block_steps(2.0, limit_s=30, least=3) == 1
    assert block_steps(2.0, limit_s=28) == 1
    assert block_steps(2.0, limit_s=27) is None
    # 22 steps for blocks of two, 30 for blocks of three.
    assert [block_steps(1.0, limit_s=limit_s, least=3) for limit_s in (21, 22, 29, 30)] == [
        1,
        2,
        2,
        3,
    ]


@given(st.floats(1e-5, 10), st.floats(FIRST_ROUND_S, 100), st.integers(1, 5))
def test_a_round_takes_no_longer_than_it_may(step_s: float, limit_s: float, least: int) -> None:
    steps = block_steps(step_s, limit_s=limit_s, least=least)
    if steps is not None:
        assert (1 + LEAD * (PAIRS + 1) + 2 * PAIRS * steps) * step_s <= limit_s * (1 + 1e-9)
    else:
        assert (1 + LEAD * (PAIRS + 1) + 2 * PAIRS) * step_s > limit_s * (1 - 1e-9)


def test_a_share_is_of_the_sums_and_its_error_of_the_units() -> None:
    # 1, 3, 1, 3 of 10 each: a fifth, a standard deviation of 2 / √3, over √4 units; t of 3 degrees
    # is 3.182.
    known = share_of(np.array([1.0, 3.0, 1.0, 3.0]), np.full(4, 10.0))
    assert known.value == pytest.approx(0.2)
    assert known.error == pytest.approx(0.2 / np.sqrt(3) / 2)
    assert known.half_width == pytest.approx(3.182 * 0.2 / np.sqrt(3) / 2, rel=1e-3)


def test_what_makes_units_longer_as_a_whole_says_nothing_against_a_share() -> None:
    whole = np.array([1.0, 2.0, 5.0, 1.0])
    assert share_of(whole / 4, whole).error == pytest.approx(0, abs=1e-12)


def test_two_units_make_no_interval() -> None:
    known = share_of(np.ones(2), np.full(2, 4.0))
    assert (known.value, known.error, known.half_width) == (0.25, None, None)


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.93), (0.5, 0.85)])
def test_the_interval_of_a_share_covers_it_also_where_neighbours_resemble_each_other(
    rho: float, least: float
) -> None:
    hits = []
    for part in drawn(600, 24, cv=0.1, rho=rho):
        known = share_of(part, np.full(24, 10.0))
        assert known.half_width is not None
        hits.append(abs(known.value - 0.1) <= known.half_width)
    assert least <= np.mean(hits) <= 0.99


def test_pairs_suffice_where_the_share_is_known_to_2_points() -> None:
    # Students t of 7 degrees is 2.365; of eight values ±1 the standard error is 1 / √7.
    with_exchange, near = np.ones(8), np.array([-1.0, 1.0] * 4)
    just = KNOWN / 2.365 * np.sqrt(7)
    assert is_known(with_exchange, 0.8 + near * just * 0.99)
    assert not is_known(with_exchange, 0.8 + near * just * 1.01)
    assert not is_known(np.ones(4), np.ones(4)), (
        "whether neighbours resemble each other is not known"
    )
