"""The timed part of a trial on one rank: warm-up, window, and what follows it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from dtsweep.hardware.device import barrier
from dtsweep.hardware.memory import peak_bytes, reserved_peak_bytes, retries
from dtsweep.hardware.nvml import CLOCK_SETTINGS
from dtsweep.measure.clock import Times
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.measure.stopping import WINDOWS, Rule
from dtsweep.measure.turns import LEAD
from dtsweep.measure.window import Peers, Window
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.settings import ENERGY_FROM_S, Measure
from dtsweep.sweep.task import Task
from dtsweep.sync.compiled import NOTHING_COMPILED, compiled_so_far
from dtsweep.sync.mode import Job
from dtsweep.worker.after_window import ModeStages
from dtsweep.worker.batch_checks import check_late_batch
from dtsweep.worker.exchange_cost import WindowTime
from dtsweep.worker.in_step import store_of
from dtsweep.worker.loop import ModeLoop, without_collector, without_lead
from dtsweep.worker.rank import RankContext
from dtsweep.worker.stages import after_window

NO_LIMIT_S = 1e9

MISMATCH, SLACK_S = 0.005, 0.002
"""By how much steps and window may differ, as a share and for the last look.

Beyond that a timer is wrong.
"""


def time_trial(
    loop: ModeLoop,
    model: nn.Module,
    task: Task,
    *,
    context: RankContext,
    on_warm: Callable[[float], None],
) -> Measured:
    """Warm up, measure a window, and do what follows it (`ModeStages`).

    The model is without the mode's wrapper.
    """
    began = time.perf_counter()
    measured, slowest_s = _windows(loop, task, context, on_warm=on_warm)
    warmup_s = time.perf_counter() - began - measured.window_s
    window = WindowTime(
        window_s=slowest_s,
        steps=measured.window_steps,
        limits=sorted(set(measured.telemetry.get("throttle_reasons") or ()) - CLOCK_SETTINGS),
    )
    fault, is_any = check_late_batch(loop)
    if is_any:
        # Ranks that went on would wait for the one whose batches fail.
        fields: dict[str, Any] = {"batch_fault": fault}
    else:
        stages = ModeStages(loop, model, task, window, context.exchanges)
        for _ in after_window(stages, task, loop.job.device):
            raise AssertionError("a mode runs its steps inside")
        fields = stages.fields
    # A mode that counts what it sends has counted all of the window, not one period of it.
    for name in ("bytes_sent", "messages_sent"):
        if getattr(measured, name) is not None:
            fields.pop(name, None)
    return replace(measured, steps=loop.columns(), warmup_s=warmup_s, **fields)


Parts = Generator[float, int, Measured]
"""A trial that is measured in turn: it yields seconds and is sent numbers of steps.

First it yields those of a warm step, then those of each turn. After 0 steps it ends.
"""


def turns_of(
    loop: ModeLoop, task: Task, context: RankContext, on_warm: Callable[[float], None]
) -> Parts:
    """Warm up, and run a turn of as many steps as are sent each time; nothing follows the last.

    The window is the union of the turns: their steps stand in it as if one had followed the other.

    Args:
        loop: of the trial.
        task: the attempt.
        context: this rank.
        on_warm: called with the slowest warm-up step in seconds.
    """
    job, began = loop.job, time.perf_counter()
    slowest_s, period_s = _warm_up(loop, task)
    on_warm(slowest_s)
    warmup_s = time.perf_counter() - began
    counted: dict[str, Any] = compiled_so_far().columns(loop.compiled_before)
    spent_s, window_s, cycle, compiled = 0.0, 0.0, 0, 0
    steps = yield period_s / job.point.period
    while steps:
        if context.watch is not None:
            context.watch.follow(loop)
        # Ranks that were no part of the turn before wait for its end.
        barrier(job.device)
        # A turn of a mode with sync periods begins with one.
        if job.point.period == 1:
            loop.run("warmup", range(LEAD))
        loop.mode.counters()
        barrier(job.device)
        before = compiled_so_far().graphs
        own_s = loop.run("window", range(steps), drain=True)
        compiled += compiled_so_far().graphs - before
        for name, count in loop.mode.counters().items():
            counted[name] = counted[name] + count if name in counted else count
        loop.join_turn(cycle, after_s=spent_s)
        (turn_s,) = max_over_ranks(job.device, own_s)
        window_s = spent_s + own_s
        spent_s += turn_s
        cycle += 1
        steps = yield turn_s
    if "compile_s" in counted or compiled:
        counted["recompiles"] = compiled
    segments = [segment for segment in loop.segments if segment.name == "window"]
    window_steps = sum(len(segment.losses) for segment in segments)
    return Measured(
        steps=loop.columns(),
        window_s=window_s,
        warmup_s=warmup_s,
        window_steps=window_steps,
        skipped_steps=sum(len(segment.losses) for segment in loop.segments) - window_steps,
        stop_reason="",
        flags=["recompiled"] if compiled else [],
        # With the models of all that take turns.
        memory_peak_bytes=None,
        threads=torch.get_num_threads(),
        **counted,
    )


def window_limits(measure: Measure, device: torch.device, *, counts_energy: bool) -> Measure:
    """Make all ranks use the same limits, long enough for energy if a rank's device counts it."""
    if not measure.energy or not any(max_over_ranks(device, counts_energy)):
        return replace(measure, energy=False)
    return replace(measure, energy=False, min_seconds=max(measure.min_seconds, ENERGY_FROM_S))


def _windows(
    loop: ModeLoop,
    task: Task,
    context: RankContext,
    *,
    on_warm: Callable[[float], None],
) -> tuple[Measured, float]:
    """Measure windows until one has no compilation.

    Also returns the seconds of the last one on the slowest rank.
    """
    job = loop.job
    can_restart = loop.job.point.mode.can_restart
    measure = window_limits(task.measure, job.device, counts_energy=context.telemetry.counts_energy)
    left_s = measure.max_seconds
    flags = list[str]()
    for count in range(1, WINDOWS + 1):
        slowest_s, period_s = _warm_up(loop, task)
        on_warm(slowest_s)
        limits = replace(measure, max_seconds=left_s)
        measured, compiled_in = _window(
            loop, replace(task, measure=limits), context, period_s=period_s
        )
        compiled, spent_s = max_over_ranks(job.device, compiled_in, measured.window_s)
        left_s -= spent_s
        if compiled:
            flags = ["recompiled"]
        # Where no window can follow, this one stays, with its flag.
        is_last = left_s <= measure.min_seconds or not can_restart or count == WINDOWS
        if is_last or not compiled:
            break
        loop.demote()
    columns = compiled_so_far().columns(loop.compiled_before)
    if columns or "recompiled" in flags:
        columns["recompiles"] = round(compiled)
    return replace(measured, **columns, flags=[*measured.flags, *flags]), spent_s


def _warm_up(loop: ModeLoop, task: Task) -> tuple[float, float]:
    """Run the steps before a window.

    Returns the time of the slowest step and of a sync period in seconds, equal on all ranks.
    """
    # Those that are unlike the rest come before all others, once in a training.
    first = max(0, loop.job.point.first_steps - loop.steps_begun)
    # The last of them ends a period, and the window begins with one.
    steps, period = task.measure.warmup_steps, loop.job.point.period
    if loop.mode.counts_periods:
        steps += -steps % period
    else:
        loop.mode.begin_period(-steps % period)
    loop.run("warmup", range(first + steps))
    # A worker that was not drawn has trained nothing yet.
    must_compile = loop.job.point.compile and not loop.job.point.draws_participants
    if must_compile and not compiled_so_far().columns(loop.compiled_before):
        raise ValueError(NOTHING_COMPILED)
    return _agree(loop.job, without_lead(first, loop.segments[-1].times))


def _window(
    loop: ModeLoop, task: Task, context: RankContext, *, period_s: float
) -> tuple[Measured, int]:
    """Measure one window of a warm loop; also how much was compiled inside it."""
    job = loop.job
    if context.is_own_process:
        task = replace(task, measure=without_deadline(task.measure))
    window = make_window(loop, task, period_s)
    loop.mode.counters()
    compiled = compiled_so_far().graphs
    retried = retries(job.device)
    with context.telemetry.sampled(), without_collector(keep=task.measure.gc):
        _use_up_loaded(loop)
        barrier(job.device)
        # Behind a barrier, so that it counts no waiting; before one, because reading takes each
        # rank its own time.
        context.telemetry.start()
        # Steps of all ranks are compared from this barrier on (`step_times_together`).
        barrier(job.device)
        window_s = loop.run("window", window, drain=True)
        seen = context.telemetry.stop()
    noticed = seen.pop("telemetry_flags")
    barrier(job.device)
    window.forget()
    flags = [*noticed]
    between = abs(window_s - loop.drained_s - float(loop.segments[-1].times["step_s"].sum()))
    if between > MISMATCH * window_s + SLACK_S:
        flags.append("timer_mismatch")
    if retries(job.device) > retried:
        flags.append("oom_retry")
    measured = Measured(
        steps={},
        window_s=window_s,
        window_steps=window.steps,
        skipped_steps=sum(len(segment.losses) for segment in loop.segments[:-1]),
        stop_reason=window.reason,
        flags=flags,
        trained_steps=loop.trained_steps(),
        memory_peak_bytes=peak_bytes(job.device),
        memory_reserved_peak_bytes=reserved_peak_bytes(job.device),
        threads=torch.get_num_threads(),
        telemetry=seen,
        **loop.mode.counters(),
    )
    return measured, compiled_so_far().graphs - compiled


def _use_up_loaded(loop: ModeLoop) -> None:
    """Train on what loader processes have made while nobody trained: a window has none for free."""
    point = loop.job.point
    if point.loader_workers is None:
        return
    # All have paused after the warm-up.
    barrier(loop.job.device)
    loaded = point.loader_workers * (point.prefetch or 1)
    periods = math.ceil(loaded / point.accumulation / point.period)
    loop.run("warmup", range(periods * point.period))
    loop.mode.counters()


def without_deadline(measure: Measure) -> Measure:
    """Return the limits, without those of time while a debugger is attached.

    It is attached by a trace function or, from Python 3.12 on, by `sys.monitoring`.
    """
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    if watches or sys.gettrace() is not None:
        return replace(measure, max_seconds=NO_LIMIT_S)
    return measure


def make_window(loop: ModeLoop, task: Task, period_s: float) -> Window:
    """The loop's next window: its rule, and what this rank shares with the others."""
    job, point = loop.job, loop.job.point
    rule = Rule(task.measure, period=point.period, period_s=period_s)
    rule.rehearse()
    # Keys of this window alone: a trial may have several.
    store = None
    if job.point.workers > 1:
        store = store_of(task, str(len(loop.segments)))
    return Window(
        task.measure,
        rule,
        loop.clock.so_far,
        peers=Peers(rank=job.rank, store=store, in_step=not point.is_asynchronous),
    )


def _agree(job: Job, warm: Times) -> tuple[float, float]:
    """Time of the slowest warm-up step and of a sync period, equal on all ranks."""
    steps_s = warm["step_s"]
    # The median: one hiccup must not make the ranks look after every step.
    if len(steps_s):
        median_s = float(np.median(steps_s))
        last_s = float(steps_s[-1])
    else:
        median_s, last_s = (0.0, 0.0)
    # The exchange falls on the last one.
    if job.point.period == 1:
        period_s = median_s
    else:
        period_s = median_s * (job.point.period - 1) + max(median_s, last_s)
    most, period_s = max_over_ranks(job.device, steps_s.max(initial=0.0), period_s)
    return most, period_s
