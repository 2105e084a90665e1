"""Blocks of steps with and without the exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.measure.exchange import turns


def block_sizes(window_steps: int, *, window_s: float = 1.0, period: int = 1) -> list[int]:
    return [steps for _, steps in turns(window_steps, window_s=window_s, period=period)]


def test_blocks_with_and_without_the_exchange_take_turns() -> None:
    exchanges = [exchanges for exchanges, _ in turns(64, window_s=1.0, period=1)]
    assert exchanges == [True, False, False, True] * 4


def test_they_have_half_of_the_windows_steps_and_take_5_seconds_at_most() -> None:
    # 16 blocks of 2 are half of 64.
    assert block_sizes(64, window_s=10) == [2] * 16
    # In 5 of 50 seconds 100 of 1000 steps: 16 blocks of 6 are 96.
    assert block_sizes(1000, window_s=50) == [6] * 16


def test_a_short_window_gets_four_pairs_and_one_that_is_shorter_than_those_gets_none() -> None:
    assert block_sizes(20) == [1] * 8
    assert block_sizes(8) == [1] * 8
    assert block_sizes(7) == []


def test_a_block_is_a_multiple_of_the_sync_period() -> None:
    # 25 periods of 4 steps: four pairs of one period each.
    assert block_sizes(100, period=4) == [4] * 8
    assert block_sizes(7 * 50, period=50) == []


@given(st.integers(1, 5000), st.floats(0.01, 600), st.integers(1, 60))
def test_a_step_time_that_rises_evenly_changes_the_difference_by_nothing(
    window_steps: int, window_s: float, period: int
) -> None:
    laid_out = list(turns(window_steps, window_s=window_s, period=period))
    exchanges = np.repeat([exchange for exchange, _ in laid_out], [steps for _, steps in laid_out]).astype(bool)
    assert exchanges.sum() * 2 == len(exchanges) <= window_steps
    assert len(exchanges) % period == 0
    if len(exchanges):
        rising = np.arange(len(exchanges))
        assert rising[exchanges].mean() == pytest.approx(rising[~exchanges].mean())
