"""Blocks of steps with and without the exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.measure.exchange import abba_blocks, untimed_steps


def block_sizes(window_steps: int, *, window_s: float = 1.0, period: int = 1) -> list[int]:
    return [steps for _, steps in abba_blocks(window_steps, window_s=window_s, period=period)]


def test_blocks_with_and_without_the_exchange_take_turns() -> None:
    exchanges = [exchanges for exchanges, _ in abba_blocks(96, window_s=1.0, period=1)]
    assert exchanges == [True, False, False, True] * 4


def test_with_a_lead_step_each_they_take_half_of_the_windows_steps_and_5_seconds_at_most() -> None:
    # 16 blocks of a lead and 2 are 48: half of 96.
    assert block_sizes(96, window_s=10) == [2] * 16
    # In 5 of 50 seconds 100 of 1000 steps: 16 blocks of a lead and 5 are 96.
    assert block_sizes(1000, window_s=50) == [5] * 16


def test_a_short_window_gets_four_pairs_and_one_with_no_room_for_those_gets_none() -> None:
    # 8 blocks of a lead and a step are 16: half of 32.
    assert block_sizes(63) == [2] * 8
    assert block_sizes(32) == [1] * 8
    assert block_sizes(31) == []


def test_of_few_long_steps_there_are_four_pairs_though_they_take_longer_than_5_seconds() -> None:
    assert block_sizes(40, window_s=200) == [1] * 8


def test_a_block_is_a_multiple_of_the_sync_period_and_begins_where_one_does() -> None:
    # 16 periods of 4 steps: four pairs of one period each are half of them.
    assert block_sizes(64, period=4) == [4] * 8
    assert block_sizes(63, period=4) == []
    assert (untimed_steps(1), untimed_steps(4)) == (1, 0)


@given(st.integers(1, 5000), st.floats(0.01, 600), st.integers(1, 60))
def test_a_step_time_that_rises_evenly_changes_the_difference_by_nothing(
    window_steps: int, window_s: float, period: int
) -> None:
    make_window = list(abba_blocks(window_steps, window_s=window_s, period=period))
    exchanges = np.repeat([exchange for exchange, _ in make_window], [steps for _, steps in make_window]).astype(bool)
    assert exchanges.sum() * 2 == len(exchanges)
    assert len(exchanges) + untimed_steps(period) * len(make_window) <= window_steps / 2
    assert len(exchanges) % period == 0
    if len(exchanges):
        rising = np.arange(len(exchanges))
        assert rising[exchanges].mean() == pytest.approx(rising[~exchanges].mean())
