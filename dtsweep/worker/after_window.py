"""After the timed window: measure the cost of communication, and profile a few steps on request."""

from __future__ import annotations

import bdb
import functools
import math
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.distributed.distributed_c10d import PrefixStore, Store, get_rank

from dtsweep.errors import error_line
from dtsweep.hardware.device import barrier
from dtsweep.hardware.memory import oom_status
from dtsweep.measure.exchange import failure_anywhere, max_over_ranks, mean_over_ranks, time_alone
from dtsweep.measure.profile import ProfileError, profiled
from dtsweep.measure.turns import FIRST_ROUND_S, LEAD, block_steps, by_pair, is_known, turns
from dtsweep.sweep.modes import MODES
from dtsweep.worker.loop import Loop

PROFILED_STEPS = 5

LEAST_GPU_STEPS = 3
"""Timed steps of a block on a GPU, where they fit: its queue has to be full again after a barrier."""

FIRST_PATIENCE_S = 60.0
"""How long a rank whose first step of a kind failed waits for the others to end theirs: it may be compiled there."""

PATIENCE_S, PATIENCE_TURNS = 10.0, 3
"""How long a rank whose turn failed waits for the others to end theirs: seconds, and how many times what it takes."""

NO_MEMORY = "a step after the window does not fit into memory"


class TurnError(Exception):
    """Steps of a turn failed on some rank, and all know it: they are in step."""


def time_exchange(
    loop: Loop, *, step_s: float, window_s: float, limit_s: float, store: Store, known: dict[str, Any]
) -> dict[str, Any]:
    """Measure what the exchange costs that hides behind other work, and the exchange alone; the model is lost by that.

    Args:
        loop: after its window.
        step_s: a step of the window,
        window_s: the window, and
        limit_s: what the steps after it may take, but for their first round: all three the same on all ranks.
        store: with keys of these steps alone.
        known: of the same exchange by itself in this world, empty where none was timed yet: it is kept there.

    Returns:
        `exchange_isolated_s`, `exchange_isolated_error_s` or `exchange_reason` of `Measured`. Where memory does not
        suffice, or steps fail, the trial is measured and keeps its row without these numbers, and with `no_profile`.
    """
    job, info = loop.job, MODES[loop.job.point.sync]
    if info.can_skip_exchange:
        try:
            reason = _take_turns(loop, step_s, window_s, limit_s, store)
        except TurnError as error:
            # Whole rounds that came before it stay.
            has_rounds = any(segment.name == "no_exchange" for segment in loop.segments)
            return {"no_profile": str(error), **({} if has_rounds else {"exchange_reason": str(error)})}
        if reason:
            return {"exchange_reason": reason}
    # All ranks must do it where one has to: what they know it by may differ.
    if info.can_exchange_alone and max_over_ranks(job.device, not known)[0]:
        barrier(job.device)
        try:
            seconds, error_s = time_alone(loop.mode.exchange_alone, job.device)
        except MemoryError:
            traceback.print_exc()
            return {}
        known.update(exchange_isolated_s=seconds, exchange_isolated_error_s=error_s)
    return dict(known)


def _take_turns(loop: Loop, step_s: float, window_s: float, limit_s: float, store: Store) -> str | None:
    """Run rounds of steps with and without the exchange until its share is known or the time spent, or say why not."""
    device = loop.job.device
    least = LEAST_GPU_STEPS if device.type == "cuda" else 1
    first_s = max(limit_s, FIRST_ROUND_S)
    steps = block_steps(step_s, limit_s=first_s, least=least, window_s=window_s)
    if steps is None:
        return f"steps with and without it would take longer than the {first_s:.0f} s that they may take"
    # Whether there is memory for one: DDP's buckets stay where they are; gradients that are views of them
    # (`gradient_as_bucket_view`) then need room of their own.
    alone = functools.partial(loop.step, exchange=False)
    together(alone, store=PrefixStore("first", store), patience_s=FIRST_PATIENCE_S)
    own, rounds, goes_on, began = np.array([]), 0, True, time.perf_counter()
    while goes_on:
        own = np.append(own, _run_round(loop, rounds, steps, store=store, step_s=step_s))
        rounds += 1
        is_sure = is_known(*by_pair(mean_over_ranks(device, own)))
        spent_s = time.perf_counter() - began
        # One more where any rank asks for it: all must take the same steps.
        goes_on = max_over_ranks(device, not is_sure and spent_s * (rounds + 1) / rounds <= limit_s)[0] > 0
    return None


def _run_round(loop: Loop, number: int, steps: int, *, store: Store, step_s: float) -> list[float]:
    """Run the turns of a round; give this rank's mean step of each block, in seconds.

    Raises:
        TurnError: a turn failed, on all ranks or without keeping one waiting; nothing of the round is kept.
    """
    means, before = list[float](), len(loop.segments)
    for index, turn in enumerate(turns(number)):
        barrier(loop.job.device)
        name, count = "exchange" if turn.exchanges else "no_exchange", steps * len(turn.blocks)
        work = functools.partial(loop.run, name, range(count), blocks=turn.blocks, lead=LEAD)
        patience_s = PATIENCE_S + PATIENCE_TURNS * (count + LEAD) * step_s
        try:
            together(work, store=PrefixStore(f"{number}/{index}", store), patience_s=patience_s)
        except TurnError:
            del loop.segments[before:]
            raise
        means += loop.segments[-1].times["step_s"].reshape(-1, steps).mean(axis=1).tolist()
    return means


def together(work: Callable[[], object], *, store: Store | None, patience_s: float) -> None:
    """Do work that all ranks do, with or without an exchange in it.

    Args:
        work: is done.
        store: with keys of it alone; None where there are no other ranks.
        patience_s: how long a rank whose work failed waits for the others to end theirs.

    Raises:
        TurnError: it failed on a rank, and all know it and are in step.
    """
    error, said = None, ""
    try:
        work()
    except bdb.BdbQuit:
        raise  # whoever leaves the debugger ends the run
    except Exception as raised:  # noqa: BLE001  # the user's own code may raise anything
        error = raised
        rank = get_rank() if store else 0
        named = f"a step after the window failed on rank {rank}: {error_line(error)}"
        said = NO_MEMORY if oom_status(error) else named
    if store is None and error is not None:
        traceback.print_exception(error)
        raise TurnError(said)
    if store is not None and (words := failure_anywhere(error, said, store=store, patience_s=patience_s)):
        raise TurnError(words)


def compression_error(loop: Loop, *, store: Store | None) -> dict[str, Any]:
    """Do a period of steps more, and hold what they exchange against the same exchange of the values themselves.

    Args:
        loop: after its window.
        store: with keys of these steps alone; None where there are no other ranks.

    Returns:
        `compression_error` of `Measured`, the same on all ranks; where a step fails, and all know it, the reason why
        no steps follow.
    """
    seen: list[float] = []

    def work() -> None:
        loop.mode.watch()
        for _ in range(loop.job.point.period):
            loop.step()
            loop.clock.end_step()
        seen.extend(loop.mode.seen())

    try:
        together(work, store=store, patience_s=FIRST_PATIENCE_S)
    except TurnError as error:
        return dict.fromkeys(("gradients_reason", "exchange_reason", "no_profile"), str(error))
    means = np.array(seen) if store is None else mean_over_ranks(loop.job.device, np.array(seen))
    apart, norm = map(float, means)
    return {"compression_error": math.sqrt(apart / norm) if norm and math.isfinite(apart / norm) else None}


def profile_steps(loop: Loop, *, store: Store | None) -> dict[str, Any]:
    """Record some more steps.

    Args:
        loop: after all that is timed.
        store: with keys of these steps alone; None where there are no other ranks.

    Returns:
        `profile` or `no_profile` of `Measured`.
    """
    device, period = loop.job.device, loop.job.point.period
    steps = math.ceil(PROFILED_STEPS / period) * period
    found: dict[str, Any] = {}

    def step() -> None:
        loop.step()
        loop.clock.end_step()

    def record() -> None:
        try:
            found["profile"] = profiled(step, steps=steps, device=device)
        except ProfileError as error:
            found["no_profile"] = str(error)

    try:
        together(record, store=store, patience_s=FIRST_PATIENCE_S)
    except TurnError as error:
        # The trial is measured: what can't be told of these steps must not cost it.
        return {"no_profile": str(error)}
    return found
