"""After the timed window: measure the cost of communication, and profile a few steps on request."""

from __future__ import annotations

import math
import traceback
from typing import Any

from dtsweep.hardware.device import barrier
from dtsweep.measure.exchange import abba_blocks, fits_in_memory, time_alone, untimed_steps
from dtsweep.measure.profile import ProfileError, profiled
from dtsweep.worker.loop import Loop

PROFILED_STEPS = 5


def time_exchange(loop: Loop, window_steps: int, window_s: float) -> float | None:
    """Run steps with and without the exchange in turns, then the exchange alone; the model is lost by that.

    Returns:
        Seconds of a step's exchange alone. None where memory does not suffice for it, or the window was too short for
        such blocks: the trial is measured and keeps its row without these numbers.
    """
    job = loop.job
    blocks = list(abba_blocks(window_steps, window_s=window_s, period=job.point.period))
    if not blocks or not _has_room(loop):
        return None
    for block, (exchanges, steps) in enumerate(blocks):
        for _ in range(untimed_steps(job.point.period)):
            loop.step(exchange=exchanges)
        barrier(job.device)
        loop.run("exchange" if exchanges else "no_exchange", range(steps), block=block)
    barrier(job.device)
    try:
        return time_alone(loop.mode.exchange_alone, job.device)
    except MemoryError:
        traceback.print_exc()
        return None


def _has_room(loop: Loop) -> bool:
    """Whether a step without the exchange fits into memory on all ranks, found by doing one.

    DDP's buckets stay where they are; gradients that are views of them (`gradient_as_bucket_view`) then need room of
    their own.
    """

    def steps() -> None:
        for _ in range(loop.job.point.period):
            loop.step(exchange=False)

    return fits_in_memory(steps, loop.job.device)


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
