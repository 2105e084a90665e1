"""The exchange between workers by itself, and what ranks have to agree on after the window."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.distributed.distributed_c10d import Store

from dtsweep.hardware.device import wait_for
from dtsweep.hardware.memory import oom_status

ALONE, ALONE_S, BATCHES = 10, 0.04, 5
"""Number of exchanges in a batch, time limit of a batch, and number of batches."""


def time_alone(exchange: Callable[[], int], device: torch.device) -> tuple[float, float]:
    """Time the exchange of a step by itself: the slowest rank's mean, in seconds per step.

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
    (about,) = max_over_ranks(device, timed(1))
    count = max(1, min(ALONE, int(ALONE_S / max(about, 1e-9))))
    batches = np.array(max_over_ranks(device, *(timed(count) for _ in range(BATCHES)))) / steps
    return float(batches.mean()), float(batches.std(ddof=1) / math.sqrt(BATCHES))


def fits_in_memory(work: Callable[[], object], device: torch.device) -> bool:
    """Run `work` without collectives; True if no rank ran out of memory, equal on all ranks.

    A rank that gave up alone would keep the others waiting in their next exchange. Its log says
    what was full.
    """
    full = False
    try:
        work()
    except (RuntimeError, MemoryError) as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        full = True
    (any_full,) = max_over_ranks(device, full)
    return not any_full


def failure_anywhere(
    error: Exception | None, message: str, *, position: int, store: Store, patience_s: float
) -> str | None:
    """Agree whether work of all ranks, with or without collectives, failed on any of them.

    They agree without an exchange: where a rank failed in the middle of one, the others wait there.

    Args:
        error: of this rank's work.
        message: the error in words.
        position: number of collectives that this rank has begun, equal on ranks that are in step.
        store: with keys of this work alone.
        patience_s: how long a rank whose work failed waits for the others to end theirs.

    Returns:
        The message of a rank that failed, equal on all ranks; None where none failed.

    Raises:
        Exception: `error`, where the others don't end their work, or are at another collective than
            this rank.
        DistError: another rank failed, and is at another collective.
    """
    ranks = distributed.get_world_size()
    place = f"at/{position}"
    if error is not None:
        traceback.print_exception(error)
        store.set("failure", message)
    store.add(place, 1)
    if store.add("ended", 1) == ranks:
        store.set("all ended", "yes")
    try:
        store.wait(["all ended"], *([] if error is None else [timedelta(seconds=patience_s)]))
    except RuntimeError:  # a store that is a file has none of its own for it
        raise error or distributed.DistError(
            "another worker does not end a step after the window"
        ) from None
    if not store.check(["failure"]):
        return None
    if store.add(place, 0) < ranks:
        raise error or distributed.DistError("another worker failed in the middle of an exchange")
    words: str = store.get("failure").decode()
    return words


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
