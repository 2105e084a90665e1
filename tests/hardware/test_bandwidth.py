"""What an operation costs that hardly computes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dtsweep.hardware.bandwidth import NUMBERS, OperationRates, operation_rates, rates_of

CPU = torch.device("cpu")


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    operation_rates.cache_clear()
    yield
    operation_rates.cache_clear()
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_rates_are_those_of_an_operation_by_hand_and_are_measured_once(one_thread: None) -> None:
    state = torch.get_rng_state()
    rates = operation_rates(CPU)
    assert operation_rates(CPU) is rates
    assert operation_rates(CPU, other_ranks=1) is not rates
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    count, seconds = NUMBERS["cpu"][1], list[float]()
    values = torch.ones(count)
    for _ in range(20):
        began = time.perf_counter()
        values * 3
        seconds.append(time.perf_counter() - began)
    # Two tensors of 4 bytes a number. On a busy machine either may be slower for a while.
    by_hand = 8 * count / min(seconds)
    assert 0.1 * by_hand < rates.bytes_per_s[rates.moved_bytes.index(8 * count)] < 10 * by_hand
    assert rates.moved_bytes[-1] == 8 * NUMBERS["cpu"][-1]
    assert 1e-7 < rates.launch_s < 1e-2


def test_launches_that_hide_what_moves_give_no_rate_and_no_other_one_is_too_fast() -> None:
    launch_s, moves, numbers = 5e-6, 3e12, (2**18, 2**22, 2**26)
    known: Any = (tuple(8 * count for count in numbers[1:]), (pytest.approx(moves),) * 2)
    queued = {count: max(launch_s, 8 * count / moves) for count in numbers}
    assert rates_of(queued, launch_s, is_queued=True) == known
    in_turn = {count: launch_s + 8 * count / moves for count in numbers}
    assert rates_of(in_turn, launch_s, is_queued=False) == known
    # The largest tensor has a rate whatever launching takes.
    largest: Any = ((8000,), (pytest.approx(8e9),))
    assert rates_of({1: 1e-6, 1000: 1e-6}, 2e-6, is_queued=False) == largest


def test_between_two_sizes_the_rate_lies_between_theirs_and_beyond_them_it_is_theirs() -> None:
    rates = OperationRates(1e-6, (100, 10_000), (100.0, 50.0))
    seconds = rates.seconds(np.array([0.0, 10.0, 1000.0, 1e6])).tolist()
    assert seconds == pytest.approx([0, 0.1, 1000 / 75, 2e4])
    assert rates.peak_bytes_per_s == 50
