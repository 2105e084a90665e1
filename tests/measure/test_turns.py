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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        # A block is as many steps as take 20 ms, and one where they are longer.
        ({"step_s": 0.001}, 20),
        ({"step_s": 0.008}, 3),
        ({"step_s": 0.02}, 1),
        ({"step_s": 0.5}, 1),
        ({"step_s": 0.001, "least": 3}, 20),
        ({"step_s": 0.02, "least": 3}, 3),
        # A round is no longer than a short window, but for what a step each takes.
        ({"step_s": 0.001, "window_s": 0.16}, 20),
        ({"step_s": 0.001, "window_s": 0.04}, 5),
        ({"step_s": 0.001, "window_s": 0.005}, 1),
        ({"step_s": 0.001, "window_s": 0.005, "least": 3}, 3),
        # 8 blocks of a step, 5 before them, and the one that shows whether memory suffices: 14
        # steps of 2 s take 28.
        ({"step_s": 2.0, "least": 3}, 1),
        ({"step_s": 2.0, "limit_s": 28}, 1),
        ({"step_s": 2.0, "limit_s": 27}, None),
        # 22 steps for blocks of two, 30 for blocks of three.
        ({"step_s": 1.0, "limit_s": 21, "least": 3}, 1),
        ({"step_s": 1.0, "limit_s": 22, "least": 3}, 2),
        ({"step_s": 1.0, "limit_s": 29, "least": 3}, 2),
        ({"step_s": 1.0, "limit_s": 30, "least": 3}, 3),
    ],
)
def test_a_block_has_steps_for_20_ms_as_far_as_a_round_fits(
    arguments: dict[str, float], expected: int | None
) -> None:
    assert block_steps(**{"limit_s": 30, **arguments}) == expected  # type: ignore[arg-type]


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
    # What makes units longer as a whole says nothing against a share.
    whole = np.array([1.0, 2.0, 5.0, 1.0])
    assert share_of(whole / 4, whole).error == pytest.approx(0, abs=1e-12)
    # Two units make no interval.
    two = share_of(np.ones(2), np.full(2, 4.0))
    assert (two.value, two.error, two.half_width) == (0.25, None, None)


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
    # Of four it is not known whether neighbours resemble each other.
    assert not is_known(np.ones(4), np.ones(4))
