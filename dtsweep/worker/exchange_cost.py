"""Cost of the exchange, after a window: by steps without it, and by the exchange alone."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.distributed_c10d import PrefixStore, Store

from dtsweep.hardware.device import barrier
from dtsweep.hardware.memory import gpu_room_bytes
from dtsweep.hardware.readiness import free_memory_bytes
from dtsweep.measure.isolated_exchange import max_over_ranks, mean_over_ranks, time_alone
from dtsweep.measure.statistics import NOISE_FROM, Series, correlated_steps
from dtsweep.measure.stopping import AFTER, AFTER_S
from dtsweep.measure.turns import (
    FIRST_ROUND_S,
    FIXED_S,
    LEAD,
    QUICK_SHARE,
    Turn,
    block_steps,
    by_pair,
    is_known,
    quick_steps,
    turns,
)
from dtsweep.sweep.modes import OWN, has_train_step
from dtsweep.sweep.settings import Measure
from dtsweep.sweep.task import Task
from dtsweep.worker.in_step import FIRST_PATIENCE_S, StepError, store_of, together
from dtsweep.worker.loop import ModeLoop, Segment, without_collector

_LEAST_GPU_STEPS = 3
"""Timed steps of a block on a GPU, where they fit: its queue has to fill again after a barrier."""

PATIENCE_S, PATIENCE_TURNS = 10.0, 3
"""Wait of a rank whose turn failed: seconds, plus a multiple of the length of the turn."""


NO_ROOM = (
    "a step without the exchange needs {needed:.2g} GiB more for whole parameters and gradients, "
    "{missing:.2g} GiB more than a worker has free"
)
"""Reason where steps without the exchange are not tried."""


_NOT_MARKED = "the workload exchanges by itself"
"""Reason where a workload's own mode does not say what its exchange costs."""

_SHARED_MODEL = "workers that share a model exchange inside forward and backward, too"
"""Reason of a grid, whose exchange can't be left out."""

_SHARED_MEMORY = (
    "workers update the same memory: nothing is sent, and no part of a step is exchange"
)
"""Reason of a mode whose updates are the exchange."""

_UNMARKED_STEP = "train_step does not mark its exchange; call mark('sync') at its end"
"""Reason where a step of the workload could say so."""


@dataclass(frozen=True, kw_only=True)
class WindowTime:
    """Length of a window on the slowest rank: the same on all ranks, but for `limits`."""

    window_s: float
    steps: int
    limits: Sequence[str] = ()
    """Reasons for which this rank's GPU lowered its clock in it, without what somebody set."""

    @property
    def step_s(self) -> float:
        """Mean step, in seconds."""
        return self.window_s / self.steps


def time_exchange(
    loop: ModeLoop, task: Task, window: WindowTime, *, spent_s: float, isolated: dict[str, Any]
) -> dict[str, Any]:
    """Measure what the exchange adds to a step, and the exchange alone. The model is lost.

    Args:
        loop: after its window.
        task: the trial.
        window: that was measured.
        spent_s: what has followed the window on this rank so far, in seconds.
        isolated: times of the exchange alone in this world; filled if it is empty.

    Returns:
        `exchange_isolated_s`, `exchange_isolated_error_s` or `exchange_reason` of `Measured`.

    Raises:
        StepError: a step failed, or does not fit into memory. Whole rounds before it stay in the
            loop.
    """
    job = loop.job
    info = job.point.mode
    if info.shares_memory:
        return {"exchange_reason": _SHARED_MEMORY}
    if task.measure.exchange == "off":
        if not info.can_leave_out:
            return {}
        return {"exchange_reason": "Measure(exchange='off')"}
    fields: dict[str, Any] = {}
    # Steps that say how long they wait for the exchange mark it.
    if job.point.sync == OWN and "sync_s" not in loop.segments[-1].times:
        has_step = has_train_step(job.point.workload)
        fields["exchange_reason"] = _UNMARKED_STEP if has_step else _NOT_MARKED
    elif job.point.grid.model > 1:
        fields["exchange_reason"] = _SHARED_MODEL
    if info.can_leave_out:
        if reason := _no_room(loop):
            fields["exchange_reason"] = reason
        else:
            # As in the window, Python's collector is off.
            with without_collector(keep=task.measure.gc):
                _take_turns(loop, task, window, spent_s=spent_s)
    # If one rank has to time it, all must: their `isolated` may differ.
    if info.can_exchange_alone and max_over_ranks(job.device, not isolated)[0]:
        barrier(job.device)
        try:
            seconds, error_s = time_alone(loop.mode.exchange_alone, job.device)
        except MemoryError:
            traceback.print_exc()
            return fields
        isolated.update(exchange_isolated_s=seconds, exchange_isolated_error_s=error_s)
    return fields | isolated


def _no_room(loop: ModeLoop) -> str | None:
    """Say that a step without the exchange does not fit into some rank's memory, else None.

    Asked before it is tried: a rank that runs out of memory in its midst would leave the others
    waiting, and the trial would be lost. The same on all ranks.
    """
    needed_bytes = loop.mode.bytes_without_exchange()
    if not needed_bytes:
        return None
    device = loop.job.device
    room = room_bytes(device, workers=loop.job.point.workers)
    (missing_bytes,) = max_over_ranks(device, needed_bytes - room)
    if missing_bytes <= 0:
        return None
    return NO_ROOM.format(needed=needed_bytes / 2**30, missing=missing_bytes / 2**30)


def room_bytes(device: torch.device, *, workers: int) -> float:
    """Memory that this rank can still take; on a CPU its share of what the host has free."""
    if device.type == "cuda":
        return gpu_room_bytes(device)
    workers_here = int(os.environ.get("LOCAL_WORLD_SIZE", workers))
    return free_memory_bytes() / workers_here


class Agreement(Protocol):
    """Agreement of all ranks on numbers."""

    def largest(self, *values: float) -> Sequence[float]:
        """The largest of each value over all ranks."""

    def mean(self, values: Sequence[float]) -> NDArray[np.float64]:
        """The mean of each value over all ranks."""


class PlannedTurn(NamedTuple):
    """A turn that all ranks run now."""

    turn: Turn
    steps: int
    """Of each of its blocks."""

    begins_round: bool = True
    """True for the first turn of a round; a quick turn is a round of its own."""


def planned_turns(
    measure: Measure,
    window: WindowTime,
    agreement: Agreement,
    *,
    spent_s: float,
    steps_s: Series,
    device: torch.device,
) -> Generator[PlannedTurn, Sequence[float], None]:
    """Plan steps with and without the exchange, as `Measure.exchange` says.

    It is sent this rank's mean step of each block of a turn, in seconds. Rounds end when the
    exchange's share is known, or the time is spent. Where no round fits, there is one quick turn.

    Args:
        measure: of the trial.
        window: that was measured.
        agreement: of all ranks, which get the same turns.
        spent_s: what has followed the window on this rank so far, in seconds.
        steps_s: of the window on this rank, in seconds.
        device: of this rank.
    """
    steps = None
    if measure.exchange == "precise":
        (limit_s,) = agreement.largest(
            min(AFTER * measure.max_seconds, max(window.window_s, AFTER_S))
        )
        steps = _round_steps(window, limit_s=limit_s, device=device)
    if steps is None:
        spent_s, noise = agreement.largest(spent_s, _noise_of_a_step(steps_s))
        quick = _quick_turn_steps(window, spent_s=spent_s, noise=noise)
        yield PlannedTurn(Turn(exchanges=False, blocks=(0,)), quick)
        return
    block_means: list[float] = []
    began = time.perf_counter()
    goes_on, rounds = True, 0
    while goes_on:
        for index, turn in enumerate(turns(rounds)):
            block_means += yield PlannedTurn(turn, steps, begins_round=not index)
        rounds += 1
        is_precise = is_known(*by_pair(agreement.mean(block_means)))
        spent_s = time.perf_counter() - began
        fits = spent_s * (rounds + 1) / rounds <= limit_s
        # One more if any rank asks for it: all must take the same steps.
        goes_on = agreement.largest(not is_precise and fits)[0] > 0


def block_means(segment: Segment, steps: int) -> list[float]:
    """Mean step of each block of so many steps, in seconds."""
    means: list[float] = segment.times["step_s"].reshape(-1, steps).mean(axis=1).tolist()
    return means


def _round_steps(window: WindowTime, *, limit_s: float, device: torch.device) -> int | None:
    """Steps of a block of the rounds that may take so long; None if not even one round fits."""
    least = 1
    if device.type == "cuda":
        least = _LEAST_GPU_STEPS
    first_s = max(limit_s, FIRST_ROUND_S)
    return block_steps(window.step_s, limit_s=first_s, least=least, window_s=window.window_s)


def _quick_turn_steps(window: WindowTime, *, spent_s: float, noise: float) -> int:
    """Steps of a turn without the exchange in what the window's budget has left."""
    share_s = QUICK_SHARE * window.window_s
    return quick_steps(
        window.step_s,
        # Checks and counts have seconds of their own; beyond those the turn gets shorter.
        share_s=share_s - max(0.0, spent_s - FIXED_S),
        budget_s=share_s + FIXED_S - spent_s,
        noise=noise,
        window_steps=window.steps,
    )


class _Collectives(NamedTuple):
    """Agreement by collectives of the ranks of a mode."""

    device: torch.device

    def largest(self, *values: float) -> Sequence[float]:
        return max_over_ranks(self.device, *values)

    def mean(self, values: Sequence[float]) -> NDArray[np.float64]:
        return mean_over_ranks(self.device, np.array(values))


def _take_turns(loop: ModeLoop, task: Task, window: WindowTime, *, spent_s: float) -> None:
    """Run the planned turns; of a round that failed nothing is kept.

    Raises:
        StepError: a turn failed, on all ranks or without keeping one waiting.
    """
    store = store_of(task, "turns")
    agreement = _Collectives(loop.job.device)
    plan = planned_turns(
        task.measure,
        window,
        agreement,
        spent_s=spent_s,
        steps_s=loop.segments[-1].times["step_s"],
        device=loop.job.device,
    )
    if task.measure.exchange == "precise":
        # Whether there is memory for one: DDP's buckets stay where they are, and gradients that are
        # views of them need room of their own. What it compiles is no part of a round.
        together(partial(_step_alone, loop), store=PrefixStore("first", store))
    planned = next(plan)
    # The first turn may allocate, too.
    patience_s = FIRST_PATIENCE_S
    with suppress(StopIteration):
        while True:
            if planned.begins_round:
                before = len(loop.segments)
            patience_s += _patience_s(planned.steps * len(planned.turn.blocks), window.step_s)
            part = PrefixStore(f"{len(loop.segments)}", store)
            try:
                _run_turn(loop, planned, store=part, patience_s=patience_s)
            except StepError:
                del loop.segments[before:]
                raise
            patience_s = 0.0
            planned = plan.send(block_means(loop.segments[-1], planned.steps))


def _step_alone(loop: ModeLoop) -> None:
    """Run a step without the exchange."""
    loop.step(without=loop.job.point.mode.can_leave_out)
    loop.end_run()


def _patience_s(steps: int, step_s: float) -> float:
    """Seconds that a rank whose turn failed waits for the others to end theirs."""
    return PATIENCE_S + PATIENCE_TURNS * (steps + LEAD) * step_s


def _noise_of_a_step(series: Series) -> float:
    """Relative standard deviation of the window's steps, with their autocorrelation counted.

    Infinite if the window is too short to show it.
    """
    if len(series) < NOISE_FROM:
        return math.inf
    return float(series.std(ddof=1) * np.sqrt(correlated_steps(series)) / series.mean())


def _run_turn(loop: ModeLoop, planned: PlannedTurn, *, store: Store, patience_s: float) -> None:
    """Run a turn, which becomes the loop's last segment.

    Raises:
        StepError: it failed on some rank.
    """
    barrier(loop.job.device)
    name = "exchange" if planned.turn.exchanges else "no_exchange"
    count = planned.steps * len(planned.turn.blocks)
    work = partial(loop.run, name, range(count), blocks=planned.turn.blocks, lead=LEAD)
    together(work, store=store, patience_s=patience_s)
