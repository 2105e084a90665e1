"""What an operation costs that hardly computes."""

from __future__ import annotations

import time
from collections.abc import Iterator

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


def test_rates_are_those_of_an_element_wise_operation_by_hand(one_thread: None) -> None:
    rates = operation_rates(CPU)
    count, seconds = NUMBERS["cpu"][1], list[float]()
    values = torch.ones(count)
    for _ in range(20):
        began = time.perf_counter()
        values * 3
        seconds.append(time.perf_counter() - began)
    # Two tensors of 4 bytes a number. On a busy machine either may be slower for a while.
    by_hand = 8 * count / min(seconds)
    assert 0.25 * by_hand < rates.bytes_per_s[rates.moved_bytes.index(8 * count)] < 4 * by_hand
    assert rates.moved_bytes[-1] == 8 * NUMBERS["cpu"][-1]
    assert 1e-7 < rates.launch_s < 1e-3


def test_launches_that_hide_what_moves_give_no_rate_and_no_other_one_is_too_fast() -> None:
    launch_s, moves = 5e-6, 3e12
    numbers = (2**18, 2**22, 2**26)
    queued = {count: max(launch_s, 8 * count / moves) for count in numbers}
    assert rates_of(queued, launch_s, is_queued=True) == (
        tuple(8 * count for count in numbers[1:]),
        (pytest.approx(moves),) * 2,
    )
    in_turn = {count: launch_s + 8 * count / moves for count in numbers}
    assert rates_of(in_turn, launch_s, is_queued=False) == (
        tuple(8 * count for count in numbers[1:]),
        (pytest.approx(moves),) * 2,
    )


def test_the_largest_tensor_has_a_rate_whatever_launching_takes() -> None:
    assert rates_of({1: 1e-6, 1000: 1e-6}, 2e-6, is_queued=False) == (
        (8000,),
        (pytest.approx(8e9),),
    )


def test_it_is_measured_once_and_leaves_random_numbers_and_gradients_alone(
    one_thread: None,
) -> None:
    state = torch.get_rng_state()
    first = operation_rates(CPU)
    assert operation_rates(CPU) is first
    assert operation_rates(CPU, other_ranks=1) is not first
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


def test_between_two_sizes_the_rate_lies_between_theirs_and_beyond_them_it_is_theirs() -> None:
    rates = OperationRates(1e-6, (100, 10_000), (100.0, 50.0))
    assert rates.seconds(np.array([10.0, 1000.0, 1e6])).tolist() == pytest.approx(
        [0.1, 1000 / 75, 2e4]
    )
    assert rates.seconds(np.array([0.0])).tolist() == [0]
    assert rates.peak_bytes_per_s == 50
