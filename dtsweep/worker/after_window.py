"""What is done when the window is over: the exchange is timed, and some steps are recorded."""

from __future__ import annotations

import contextlib
import math
import traceback
from dataclasses import asdict
from typing import Any

import torch

from dtsweep.measure.exchange import abba_blocks, fits_in_memory, time_alone, untimed_steps
from dtsweep.measure.profile import ProfileError, profiled
from dtsweep.worker.loop import Loop, barrier

PROFILED_STEPS = 5


def time_exchange(loop: Loop, window_steps: int, window_s: float) -> dict[str, Any]:
    """Steps with and without the exchange in turns, then the exchange alone; the model is lost by that.

    The trial is measured: where memory doesn't suffice for more, it keeps its row without these figures.
    """
    job = loop.job
    blocks = list(abba_blocks(window_steps, window_s=window_s, period=job.point.period))
    if not blocks or not _has_room(loop):
        return {}
    for block, (exchanges, steps) in enumerate(blocks):
        for _ in range(untimed_steps(job.point.period)):
            loop.step(exchange=exchanges)
        barrier(job.device)
        loop.run("exchange" if exchanges else "no_exchange", range(steps), block=block)
    barrier(job.device)
    try:
        return {"exchange_isolated_s": time_alone(loop.mode.exchange_alone, job.device)}
    except MemoryError:
        traceback.print_exc()
        return {}


def _has_room(loop: Loop) -> bool:
    """Whether a step without the exchange fits into memory on all ranks, found by doing one.

    DDP's buckets stay where they are; gradients that are views of them (`gradient_as_bucket_view`) then need room of
    their own.
    """

    def steps() -> None:
        for _ in range(loop.job.point.period):
            loop.step(exchange=False)

    return fits_in_memory(steps, loop.job.device)


def record(loop: Loop, profiler: str) -> dict[str, Any]:
    """Record some more steps; nsys writes its own report."""
    device, period = loop.job.device, loop.job.point.period
    steps = math.ceil(PROFILED_STEPS / period) * period

    def step() -> None:
        loop.step()
        loop.clock.end_step()

    if profiler == "torch":
        try:
            return {"profile": asdict(profiled(step, steps=steps, device=device))}
        except ProfileError as error:
            # The trial is measured: what can't be told of these steps must not cost it.
            return {"no_profile": str(error)}
    barrier(device)
    with torch.cuda.profiler.profile() if device.type == "cuda" else contextlib.nullcontext():
        for _ in range(steps):
            step()
        barrier(device)
    return {}
