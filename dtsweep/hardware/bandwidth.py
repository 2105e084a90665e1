"""Cost of an operation that hardly computes: its launch, and memory traffic by size."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dtsweep.hardware.device import wait_for
from dtsweep.hardware.memory import release_memory

TRY_S, TRIES = 0.003, 3
"""Time and least count of tries for each kind of operation: some hundredths of a second in all."""

NUMBERS = {"cpu": (2**14, 2**18, 2**21), "cuda": (2**18, 2**22, 2**26)}
"""fp32 numbers of a tensor, from those that caches hold to those that main memory does."""

_QUEUED = {"cpu": 1, "cuda": 10}
"""Operations that are timed together: a GPU has to be waited for."""

_SEEN = 2.0
"""Number of times what launching takes an operation has to take for its bytes to be seen moving."""

_CHAIN = 200
"""Operations in a row, each has a backward, by which launching is timed."""


@dataclass(frozen=True)
class OperationRates:
    """Measured rates of one device."""

    launch_s: float
    """Seconds between two operations of a pass with one element each.

    Python, autograd and dispatch take them.
    """

    moved_bytes: tuple[int, ...]
    """Bytes that the tried operations read and wrote together, ascending."""

    bytes_per_s: tuple[float, ...]
    """Bytes per second of each of them."""

    @property
    def peak_bytes_per_s(self) -> float:
        """Of the largest: main memory's, as far as no cache holds that much."""
        return self.bytes_per_s[-1]

    def seconds(self, moved: NDArray[np.float64]) -> NDArray[np.float64]:
        """Time of operations that move these numbers of bytes, without their launch.

        >>> rates = OperationRates(1e-6, (10, 1000), (10.0, 5.0))
        >>> rates.seconds(np.array([5.0, 1000.0, 4000.0])).tolist()
        [0.5, 200.0, 800.0]
        """
        rates = np.interp(
            np.log(np.maximum(moved, 1.0)), np.log(self.moved_bytes), self.bytes_per_s
        )
        taken: NDArray[np.float64] = moved / rates
        return taken


@functools.cache
def operation_rates(device: torch.device, *, other_ranks: int = 0) -> OperationRates:  # noqa: ARG001  # a key
    """Measure what element-wise operations cost, once per process and world.

    A tensor is doubled into new memory, as a model's operations have it: on a CPU that takes page
    faults, too. The random state stays as it is, and the memory that it took, 0.5 GB on a GPU and
    16 MB on a CPU, is given back.

    Args:
        device: where to; on a CPU with the threads that torch has.
        other_ranks: number of other ranks that measure at once and share memory.
    """
    with torch.inference_mode():
        alone_s = _doubling_s(1, device)
        taken = {count: _doubling_s(count, device) for count in NUMBERS[device.type]}
    launch_s = min(_launch_s(device) for _ in range(TRIES))
    release_memory(device)
    moved, rates = rates_of(taken, alone_s, is_queued=_QUEUED[device.type] > 1)
    return OperationRates(launch_s, moved, rates)


def rates_of(
    taken: Mapping[int, float], alone_s: float, *, is_queued: bool
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Memory rates of the sizes whose traffic is visible beyond the launch.

    The largest tensor always does.

    Args:
        taken: seconds of an operation by the numbers of its tensor, ascending.
        alone_s: of one number: what launching takes.
        is_queued: whether a device moves them while the next ones are launched, so that the longer
            of both counts; else launching comes first.

    Returns:
        Bytes, read and written together, and bytes per second.

    >>> rates_of({1000: 1.5e-6, 10**6: 9e-6}, 1e-6, is_queued=False)
    ((8000000,), (1000000000000.0,))
    """
    *_, largest = taken
    seen = {
        count: took for count, took in taken.items() if took >= _SEEN * alone_s or count == largest
    }
    moving = {}
    for count, took in seen.items():
        start_s = 0.0
        if not is_queued and took > alone_s:
            start_s = alone_s
        moving[2 * 4 * count] = took - start_s
    return tuple(moving), tuple(moved / took for moved, took in moving.items())


def _doubling_s(count: int, device: torch.device) -> float:
    """Seconds to double this many numbers: the least of all tries, which is least disturbed."""
    source = torch.ones(count, device=device)
    queued = _QUEUED[device.type]
    times = list[float]()
    end = time.perf_counter() + TRY_S
    while len(times) < TRIES or time.perf_counter() < end:
        wait_for(device)
        began = time.perf_counter()
        for _ in range(queued):
            source * 2
        wait_for(device)
        times.append((time.perf_counter() - began) / queued)
    return min(times)


def _launch_s(device: torch.device) -> float:
    """Seconds of an operation on one number, mean of forward and backward."""
    with torch.enable_grad():
        start = torch.ones(1, device=device, requires_grad=True)
        value = start
        wait_for(device)
        began = time.perf_counter()
        for _ in range(_CHAIN):
            value = value * 0.5
        value.backward()
        wait_for(device)
    return (time.perf_counter() - began) / (2 * _CHAIN)
