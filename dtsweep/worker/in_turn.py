"""Points measured in turn on one rank: all are built, and in each cycle each trains a few steps.

Points that are measured one after the other see different minutes of a machine that others use;
points in turn see the same ones (Abedi & Brecht 2017; Bulej et al. 2020).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch

from dtsweep.hardware.random_states import RandomStates
from dtsweep.measure.cycles import LEAST_CYCLES, in_columns, standing
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.measure.stopping import LEAST_STEPS
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.settings import Measure
from dtsweep.sweep.task import Task
from dtsweep.sync.compiled import compiled_so_far
from dtsweep.worker.attention import attention_kernel
from dtsweep.worker.exchange_cost import room_bytes
from dtsweep.worker.loop import without_collector
from dtsweep.worker.mode_trial import set_precision, trial_in_turn
from dtsweep.worker.rank import RankContext
from dtsweep.worker.world import part_of_world, smaller_world

_LEAST_S = 0.2
"""Least seconds of a turn."""

_LEAST_CYCLES_TO_STOP = 8
"""Cycles from which on the precision may end them."""

_GO_ON, _ENDS = "", ("", "precise", "max_seconds", "max_steps")
"""Reasons to stop after a cycle, by the number that ranks agree on."""


class _Contender:
    """A point among those that are measured in turn, on this rank."""

    def __init__(self, context: RankContext, task: Task, on_warm: Callable[[float], None]) -> None:
        """Build the model and warm up, if this rank is in the point's world."""
        self.task = task
        self.step_s: list[float] = []
        """Mean step of each turn on the slowest rank; empty where this one is in another world."""
        self.steps, self.seconds = 0, 0.0
        """Of all turns so far."""
        self.is_compiled = False
        """True if torch has compiled its model: all models of a process share the compiled code."""
        self._states = RandomStates(context.device)
        self._parts = None
        self._turn_steps = 0
        if context.rank < task.point.workers:
            self._parts = trial_in_turn(context, task, on_warm)
            compiled = compiled_so_far().graphs
            with self._world():
                self._turn_steps = _steps_of_turn(next(self._parts), period=task.point.period)
            self.is_compiled = compiled_so_far().graphs > compiled

    def _world(self) -> ExitStack:
        """Enter the point's world, and set what a process has once for all models."""
        stack = ExitStack()
        stack.enter_context(smaller_world(self.task.point.workers))
        stack.enter_context(self._states.used())
        set_precision(self.task.point.precision)
        stack.enter_context(attention_kernel(self.task.point.attention))
        return stack

    def turn(self) -> None:
        """Train for a turn."""
        if self._parts is None:
            return
        with self._world():
            turn_s = self._parts.send(self._turn_steps)
        self.step_s.append(turn_s / self._turn_steps)
        self.steps += self._turn_steps
        self.seconds += turn_s
        # The first steps of a warm-up may be slow.
        steps = _steps_of_turn(self.step_s[-1], period=self.task.point.period)
        self._turn_steps = max(self._turn_steps, steps)

    def end(self, *, reason: str, flags: Sequence[str]) -> Measured | None:
        """End the window; None where this rank is in another world."""
        if self._parts is None:
            return None
        try:
            with self._world():
                self._parts.send(0)
        except StopIteration as end:
            measured: Measured = end.value
            return replace(measured, stop_reason=reason, flags=[*measured.flags, *flags])
        raise AssertionError("a trial ends after 0 steps")

    def close(self) -> None:
        """Let go of the model."""
        if self._parts is not None:
            self._parts.close()


def measure_in_turn(
    context: RankContext, task: Task, on_warm: Callable[[float], None]
) -> list[Measured | None]:
    """Measure a task and those that are in turn with it, cycle after cycle.

    A point that does not fit into memory next to the others keeps a window of its own: one whose
    highest memory in an earlier launch is above what some rank has free, or is not known. So does
    one whose model is compiled.

    Args:
        context: this rank.
        task: with the largest world; the others are in `task.in_turn`.
        on_warm: called with the slowest warm-up step in seconds, just before the first cycle.

    Returns:
        Measurements of all of them, in this order; None for one that is not measured on this rank.
    """
    slowest_s = [0.0]
    with ExitStack() as stack:
        for workers in sorted({one.point.workers for one in task.in_turn}):
            part_of_world(workers)
        contenders = _built(context, task, slowest_s.append, stack)
        on_warm(max(slowest_s))
        with context.telemetry.sampled(), without_collector(keep=task.measure.gc):
            context.telemetry.start()
            reason = _take_turns([*contenders.values()], task, context.device)
            # Its numbers are of all points together. Energy is not asked of turns.
            noticed = {*context.telemetry.stop()["telemetry_flags"]} - {"window_short"}
        return [
            contenders[one.attempt_id].end(reason=reason, flags=sorted(noticed))
            if one.attempt_id in contenders
            else None
            for one in (task, *task.in_turn)
        ]


def _built(
    context: RankContext, task: Task, on_warm: Callable[[float], None], stack: ExitStack
) -> dict[str, _Contender]:
    """Build those that take turns, by attempt; equal on all ranks.

    The order is drawn: a model that is built later may lie elsewhere in memory, and be slower.
    """
    tasks = (task, *task.in_turn)
    order = random.Random(f"{task.attempt_id} build")
    built: dict[str, _Contender] = {}
    for one in order.sample(tasks, len(tasks)):
        # The task itself is built in any case: its room is kept.
        kept_bytes = 0 if task.attempt_id in built else task.known_peak_bytes or 0
        if one is task or _fits(context, one, kept_bytes, workers=task.point.workers):
            contender = built[one.attempt_id] = _Contender(context, one, on_warm)
            stack.callback(contender.close)
    compiled = max_over_ranks(context.device, *(one.is_compiled for one in built.values()))
    is_left_out = dict(zip(built, compiled, strict=True))
    for name, contender in list(built.items()):
        if contender.task is not task and (is_left_out[name] or is_left_out[task.attempt_id]):
            built.pop(name).close()
    return built


def _fits(context: RankContext, task: Task, kept_bytes: int, *, workers: int) -> bool:
    """True if all ranks have as much memory free as a task's point has used, and what is kept."""
    missing = math.inf
    if task.known_peak_bytes is not None and not task.is_alone:
        missing = task.known_peak_bytes + kept_bytes
        missing -= room_bytes(context.device, workers=workers)
    return max_over_ranks(context.device, missing)[0] <= 0


def _steps_of_turn(step_s: float, *, period: int) -> int:
    """Steps of a turn: whole sync periods, `LEAST_STEPS` without any, and `_LEAST_S` or more.

    >>> [_steps_of_turn(0.001, period=1), _steps_of_turn(1, period=1), _steps_of_turn(1, period=8)]
    [200, 5, 8]
    """
    least = math.ceil(_LEAST_S / step_s) if step_s > 0 else 1
    if period == 1:
        least = max(least, LEAST_STEPS)
    return math.ceil(least / period) * period


def _take_turns(contenders: Sequence[_Contender], task: Task, device: torch.device) -> str:
    """Run cycle after cycle, each in another order, until rank 0 has a reason to stop."""
    # The same on all ranks.
    order = random.Random(task.attempt_id)
    active, number = contenders, 0.0
    while not number:
        for contender in order.sample(active, len(active)):
            contender.turn()
        reason, is_out = _after_cycle(contenders, active, task)
        number, *agreed = max_over_ranks(device, _ENDS.index(reason), *is_out)
        active = [one for one, out in zip(contenders, agreed, strict=True) if not out]
    return _ENDS[round(number)]


def _after_cycle(
    contenders: Sequence[_Contender], active: Sequence[_Contender], task: Task
) -> tuple[str, Sequence[bool]]:
    """Give a reason to stop, empty to go on, and which contenders have no further turns.

    Only a rank that is in all worlds knows enough; the others go on.
    """
    measure, is_out = task.measure, [one not in active for one in contenders]
    cycles = max(len(one.step_s) for one in contenders)
    if not all(one.step_s for one in contenders) or cycles < LEAST_CYCLES:
        return _GO_ON, is_out
    limit = _limit(active, measure)
    is_long = all(
        one.seconds >= measure.min_seconds and one.steps >= measure.min_steps for one in active
    )
    if limit or not is_long or cycles < _LEAST_CYCLES_TO_STOP:
        return limit, is_out
    if measure.half_width is None or len(contenders) == 1:
        return "precise", is_out
    logs = -np.log(in_columns([one.step_s for one in contenders]))
    if task.turns_by != "latency_s":
        logs += np.log([[one.task.point.global_batch] for one in contenders])
    found = standing(logs, np.array(is_out), half_width=measure.half_width)
    if found.is_settled:
        return "precise", is_out
    if task.turns_by is not None:
        is_out = found.is_behind.tolist()
    return _GO_ON, is_out


def _limit(active: Sequence[_Contender], measure: Measure) -> str:
    """Limit of time or steps that is reached; empty if none is."""
    if max(one.seconds for one in active) >= measure.max_seconds:
        return "max_seconds"
    return "max_steps" if min(one.steps for one in active) >= measure.max_steps else _GO_ON
