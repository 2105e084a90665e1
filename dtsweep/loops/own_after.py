"""Steps of a user's training loop after its window: checks, facts, the exchange."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from dtsweep.loops.loader_watch import LoaderWatch
from dtsweep.loops.optimizer_steps import OptimizerSteps
from dtsweep.loops.own_checks import OTHER_PARTS, SAME_BATCHES, Judge
from dtsweep.loops.own_exchange import FsdpSilence, Silence, exchange_turns, silence_of
from dtsweep.loops.own_facts import ForwardWatch, data_ranks, hooks_of
from dtsweep.loops.own_parts import TimedParts
from dtsweep.measure.store_group import StoreGroup
from dtsweep.measure.turns import QUICK_SHARE
from dtsweep.metrics.own_loops import broken_grid
from dtsweep.sweep.named_grid import NamedGrid
from dtsweep.sweep.task import Task
from dtsweep.worker.exchange_cost import (
    NO_ROOM,
    WindowTime,
    planned_turns,
    room_bytes,
)
from dtsweep.worker.gradients import StepSums, sums_of
from dtsweep.worker.stages import Steps, after_window

LEAST_CHECKED, MOST_CHECKED = 4, 256
"""Steps in which ranks that have different gradients are looked at, at least and at most."""

CHECKED_S = 2.0
"""Seconds that these may take, where a quarter of the window is less."""


_MOST_SKIPPED = 16
"""Steps without an update, as a GradScaler skips them, that are waited for."""

_NOT_QUEUED = "steps of a user's own loop can't be queued ahead"


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Instruments around a loop on one rank."""

    task: Task
    device: torch.device
    group: StoreGroup
    steps: OptimizerSteps
    loaders: LoaderWatch
    parts: TimedParts
    grid: NamedGrid | None = None
    """That the arguments of a script promise."""

    def judge(self, *, may_go_on: bool = True) -> Judge:
        """Make a judge of the ranks' updates."""
        return Judge(may_go_on=may_go_on, context=self.grid.context if self.grid else 1)


@dataclass
class AfterWindow:
    """Steps that follow a window; a field that is not known yet is missing."""

    watched: Watched
    window: WindowTime
    collectives: int | None
    """That this rank began in the window."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of `Measured`."""

    def __post_init__(self) -> None:
        """Prepare to watch a step."""
        self._forwards = ForwardWatch()
        self._optimizers: dict[int, Optimizer] = {}
        self._has_others = self.watched.group.workers > 1
        self.flags: list[str] = []

    goes_on = True
    """Whatever the checks find, the rest is measured."""

    def run(self) -> Steps:
        """Do all of it; the loop goes on at each `yield`."""
        watched = self.watched
        try:
            yield from after_window(self, watched.task, watched.device)
        finally:
            watched.steps.on_begin = watched.steps.on_end = None
            self._forwards.clear()
            self._optimizers.clear()

    def note_failure(self, reason: str) -> None:
        """Set the reason of a failed step for all fields that are not known yet."""
        if "loop_precision" not in self.fields:
            self.fields.setdefault("loop_reason", reason)
        if self._has_others and "semantics" not in self.fields:
            self.fields |= {"semantics": "unknown", "gradients_reason": reason}
        has_turns = any(part.name == "no_exchange" for part in self.watched.parts.parts)
        if self._has_others and not has_turns:
            self.fields.setdefault("exchange_reason", reason)

    def checks(self) -> Steps:
        """See what is called in a step, and compare gradients and parameters of all ranks."""
        group, loaders = self.watched.group, self.watched.loaders
        judge = self.watched.judge()
        began = time.perf_counter()
        is_first, goes_on = True, True
        while goes_on:
            sums = StepSums(group.rank)
            loaders.begin_digest()
            with self._forwards.watched() if is_first else nullcontext():
                yield from self._step(sums)
            if is_first:
                self.fields |= self._forwards.facts(self._stepped())
            is_first = False
            batches = loaders.digest()
            if not self._has_others:
                return
            spent_s = time.perf_counter() - began
            has_time = spent_s < max(CHECKED_S, QUICK_SHARE * self.window.window_s)
            checked = judge.steps + 1
            judge.may_go_on = checked < LEAST_CHECKED or (has_time and checked < MOST_CHECKED)
            others = {"collectives": self.collectives, "batches": batches, **self._of_model()}
            verdict = group.decided({**sums.as_json(), **others}, judge)
            goes_on = verdict.pop("goes_on")
        self.note_verdict(verdict)
        if verdict["semantics"] == "exact" and hooks_of(self._forwards.wrapped()):
            self.fields["semantics"] = "lossy"

    def note_verdict(self, verdict: dict[str, Any]) -> None:
        """Note what the ranks' updates and batches are, as `Judge` says it."""
        sizes = verdict.pop("ranks_per_model")
        grid, size = self.watched.grid, sizes[self.watched.group.rank]
        self.fields |= {**verdict, "model_parallel": size}
        # Of workers without batches nothing is known, and so of those that share a model with them.
        if grid is not None and None not in sizes and (reason := broken_grid(grid, size)):
            self.fields["batch_fault"] = ("wrong_grid", reason)
        if verdict["gradients_reason"] == OTHER_PARTS and grid is None:
            self.fields |= {"samples_per_step": None, "samples_reason": OTHER_PARTS}
        if verdict["gradients_reason"] == SAME_BATCHES:
            self.flags.append("same_batches")

    def _of_model(self) -> dict[str, Any]:
        """Ranks that exchange gradients, and sums of the model if an optimizer has none of it."""
        model = self._forwards.parameters()
        sums = None
        optimizers = self._stepped()
        of_optimizers = (
            p for one in optimizers for group in one.param_groups for p in group["params"]
        )
        if model and not any(id(p) in model for p in of_optimizers):
            sums = sums_of(model.values())
        return {"model": sums, "data_ranks": data_ranks(self._forwards.wrapped())}

    def _step(self, sums: StepSums) -> Steps:
        """Note one step that updates parameters."""
        steps = self.watched.steps
        ended: set[int] = set()

        def end(optimizer: Optimizer) -> None:
            ended.add(id(optimizer))
            self._optimizers[id(optimizer)] = optimizer
            if self._has_others:
                sums.end(optimizer)

        if self._has_others:
            steps.on_begin = sums.begin
        steps.on_end = end
        for _ in range(_MOST_SKIPPED):
            yield
            if id(steps.followed) in ended:
                break
        steps.on_begin = steps.on_end = None

    def _stepped(self) -> list[Optimizer]:
        """The optimizers that step; the first is the one whose steps count."""
        followed = self.watched.steps.followed
        assert followed is not None, "it has stepped"
        return list({id(followed): followed, **self._optimizers}.values())

    def idle(self) -> None:
        """Limits of the share of a step in which this rank's GPU had no work, by the window."""
        part = self.watched.parts.last("window")
        if not part.most_idle:
            return
        idle_s = float(part.most_idle["loop_s"].sum())
        self.fields |= {
            "device_idle_low": 0.0,
            "device_idle_high": idle_s / float(part.times["step_s"].sum()),
            "device_idle_reason": _NOT_QUEUED,
        }

    def compression(self) -> None:
        """Leave it: what a loop sends is not compressed by dtsweep."""

    def exchange(self, spent_s: float) -> Steps:
        """Time steps without the exchange; the parameters of ranks differ after that."""
        watched = self.watched
        measure = watched.task.measure
        if measure.exchange == "off":
            self.fields["exchange_reason"] = "Measure(exchange='off')"
            return
        if self.fields["semantics"] == "not_exchanged":
            self.fields["exchange_reason"] = "workers exchange nothing"
            return
        silence = silence_of(self._forwards, self._stepped())
        if isinstance(silence, str):
            self.fields["exchange_reason"] = silence
            return
        if reason := self._no_room(silence):
            silence.end()
            self.fields["exchange_reason"] = reason
            return
        if isinstance(silence, FsdpSilence):
            watched.steps.on_begin = silence.before_update
        plan = partial(
            planned_turns,
            measure,
            self.window,
            spent_s=spent_s,
            steps_s=watched.parts.last("window").times["step_s"],
            device=watched.device,
        )
        yield from exchange_turns(watched.parts, watched.group, silence, plan)
        watched.steps.on_begin = None

    def _no_room(self, silence: Silence) -> str | None:
        """Say that a step without the exchange does not fit into some rank's memory, else None."""
        group = self.watched.group
        room = room_bytes(self.watched.device, workers=group.workers)
        (missing_bytes,) = group.largest(silence.needed_bytes - room)
        if not silence.needed_bytes or missing_bytes <= 0:
            return None
        return NO_ROOM.format(needed=silence.needed_bytes / 2**30, missing=missing_bytes / 2**30)
