"""After the timed window: measure the cost of communication, and profile a few steps on request."""

from __future__ import annotations

import math
import time
import traceback
from typing import Any

import numpy as np

from dtsweep.hardware.device import barrier
from dtsweep.measure.exchange import fits_in_memory, max_over_ranks, mean_over_ranks, time_alone
from dtsweep.measure.profile import ProfileError, profiled
from dtsweep.measure.turns import FIRST_ROUND_S, LEAD, block_steps, by_pair, is_known, turns
from dtsweep.sweep.modes import MODES
from dtsweep.worker.loop import Loop

PROFILED_STEPS = 5

LEAST_GPU_STEPS = 3
"""Timed steps of a block on a GPU, where they fit: its queue has to be full again after a barrier."""

NO_MEMORY = "a step without the exchange does not fit into memory"


def time_exchange(loop: Loop, *, step_s: float, limit_s: float) -> dict[str, Any]:
    """Measure what the exchange costs that hides behind other work, and the exchange alone; the model is lost by that.

    Args:
        loop: after its window.
        step_s: a step of the window, and
        limit_s: what the steps after it may take, but for their first round: both the same on all ranks.

    Returns:
        `exchange_isolated_s`, `exchange_isolated_error_s` or `exchange_reason` of `Measured`. Where memory does not
        suffice the trial is measured and keeps its row without these numbers.
    """
    job, info = loop.job, MODES[loop.job.point.sync]
    if info.can_skip_exchange and (reason := _take_turns(loop, step_s, limit_s)):
        return {"exchange_reason": reason}
    if not info.can_exchange_alone:
        return {}
    barrier(job.device)
    try:
        seconds, error_s = time_alone(loop.mode.exchange_alone, job.device)
    except MemoryError:
        traceback.print_exc()
        return {}
    return {"exchange_isolated_s": seconds, "exchange_isolated_error_s": error_s}


def _take_turns(loop: Loop, step_s: float, limit_s: float) -> str | None:
    """Run rounds of steps with and without the exchange until its share is known or the time spent, or say why not."""
    device = loop.job.device
    least = LEAST_GPU_STEPS if device.type == "cuda" else 1
    first_s = max(limit_s, FIRST_ROUND_S)
    steps = block_steps(step_s, limit_s=first_s, least=least)
    if steps is None:
        return f"steps with and without it would take longer than the {first_s:.0f} s that they may take"
    if not _has_room(loop):
        return NO_MEMORY
    own, rounds, goes_on, began = np.array([]), 0, True, time.perf_counter()
    while goes_on:
        own = np.append(own, _run_round(loop, rounds, steps))
        rounds += 1
        is_sure = is_known(*by_pair(mean_over_ranks(device, own)))
        spent_s = time.perf_counter() - began
        # One more where any rank asks for it: all must take the same steps.
        goes_on = max_over_ranks(device, not is_sure and spent_s * (rounds + 1) / rounds <= limit_s)[0] > 0
    return None


def _run_round(loop: Loop, number: int, steps: int) -> list[float]:
    """Run the turns of a round; give this rank's mean step of each block, in seconds."""
    means: list[float] = []
    for turn in turns(number):
        barrier(loop.job.device)
        name = "exchange" if turn.exchanges else "no_exchange"
        loop.run(name, range(steps * len(turn.blocks)), blocks=turn.blocks, lead=LEAD)
        means += loop.segments[-1].times["step_s"].reshape(-1, steps).mean(axis=1).tolist()
    return means


def _has_room(loop: Loop) -> bool:
    """Whether a step without the exchange fits into memory on all ranks, found by doing one.

    DDP's buckets stay where they are; gradients that are views of them (`gradient_as_bucket_view`) then need room of
    their own.
    """
    return fits_in_memory(lambda: loop.step(exchange=False), loop.job.device)


def profile_steps(loop: Loop) -> dict[str, Any]:
    """Record some more steps.

    Returns:
        `profile` or `no_profile` of `Measured`.
    """
    device, period = loop.job.device, loop.job.point.period
    steps = math.ceil(PROFILED_STEPS / period) * period

    def step() -> None:
        loop.step()
        loop.clock.end_step()

    try:
        return {"profile": profiled(step, steps=steps, device=device)}
    except ProfileError as error:
        # The trial is measured: what can't be told of these steps must not cost it.
        return {"no_profile": str(error)}
