"""The exchange between workers by itself, and what ranks have to agree on after the window."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from dtsweep.hardware.device import wait_for
from dtsweep.hardware.memory import oom_status

ALONE, ALONE_S, BATCHES = 10, 0.1, 5
"""How often the exchange is done by itself in a batch, for how long at most, and how many batches there are."""


def time_alone(exchange: Callable[[], int], device: torch.device) -> tuple[float, float]:
    """Time the exchange of a step by itself: the slowest rank's mean of a batch, in seconds per step.

    Args:
        exchange: does it; returns how many steps share one.
        device: where its work runs.

    Returns:
        The mean over batches, and its standard error.
    """

    def timed(count: int) -> float:
        wait_for(device)
        began = time.perf_counter()
        for _ in range(count):
            exchange()
        wait_for(device)
        return (time.perf_counter() - began) / count

    steps = exchange()
    # All ranks must agree how often: an exchange has as many parts as there are ranks.
    (about,) = max_over_ranks(device, timed(2))
    count = max(1, min(ALONE, int(ALONE_S / max(about, 1e-9))))
    batches = np.array(max_over_ranks(device, *(timed(count) for _ in range(BATCHES)))) / steps
    return float(batches.mean()), float(batches.std(ddof=1) / math.sqrt(BATCHES))


def fits_in_memory(work: Callable[[], object], device: torch.device) -> bool:
    """Run `work` (no collectives inside); True if no rank ran out of memory. All ranks get the same answer.

    A rank that gave up alone would keep the others waiting in their next exchange. Its log says what was full.
    """
    full = False
    try:
        work()
    except RuntimeError as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        full = True
    (any_full,) = max_over_ranks(device, full)
    return not any_full


def max_over_ranks(device: torch.device, *values: float) -> list[float]:
    """The largest of each value over all ranks."""
    shared = torch.tensor(values, dtype=torch.float64).to(device)
    distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
    return [float(value) for value in shared]


def mean_over_ranks(device: torch.device, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each value over all ranks."""
    # A copy: on a CPU the sums would be written into the caller's own numbers.
    shared = torch.from_numpy(values).to(device, copy=True)
    distributed.all_reduce(shared)
    means: NDArray[np.float64] = shared.cpu().numpy() / distributed.get_world_size()
    return means
