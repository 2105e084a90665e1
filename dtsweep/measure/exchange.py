"""What the exchange between workers costs: steps with and without it in turns, and the exchange by itself."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator

import torch
from torch import distributed

from dtsweep.hardware.device import wait_for
from dtsweep.hardware.memory import oom_status
from dtsweep.measure.stopping import AFTER

PAIRS, FEW_PAIRS = 8, 4
"""Pairs of blocks, one with and one without the exchange; fewer where the window has few steps."""

MOST_S = 5.0
"""All blocks together take no longer, unless so few steps would be in them."""

ALONE, ALONE_S = 20, 1.0
"""How often the exchange is done by itself, and for how long at most."""


def abba_blocks(window_steps: int, *, window_s: float, period: int) -> Iterator[tuple[bool, int]]:
    """Lay out blocks of steps with and without the exchange: A B B A A B B A …, so that drift falls on both alike.

    Args:
        window_steps: steps that the window had.
        window_s: how long it took, in seconds: the same number on all ranks.
        period: a block is a multiple of it.

    Yields:
        Whether the block exchanges, and its timed steps. Nothing where four pairs, each block with the step before
        it, would take more than their share of the window.
    """
    lead = untimed_steps(period)
    most = window_steps * AFTER
    wanted = min(most, window_steps * MOST_S / window_s)
    pairs = PAIRS if wanted >= 2 * PAIRS * (lead + period) else FEW_PAIRS
    if most < 2 * pairs * (lead + period):
        return
    steps = max(1, int((wanted / (2 * pairs) - lead) / period)) * period
    for pair in range(pairs):
        yield from ((pair % 2 == 0, steps), (pair % 2 == 1, steps))


def untimed_steps(period: int) -> int:
    """Steps at the start of a block that are not timed.

    A step's forward begins with what the step before decided (DDP shares buffers after one with an exchange), so the
    first one belongs to the block before. With a sync period nothing is shared between two exchanges.
    """
    return int(period == 1)


def time_alone(exchange: Callable[[], int], device: torch.device) -> float:
    """Time the exchange of a step by itself: the slowest rank's mean of up to 20, in seconds per step.

    Args:
        exchange: does it; returns how many steps share one.
        device: where its work runs.
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
    count = max(2, min(ALONE, int(ALONE_S / max(about, 1e-9))))
    return max_over_ranks(device, timed(count))[0] / steps


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
