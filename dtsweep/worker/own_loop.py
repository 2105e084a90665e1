"""A training loop that somebody else wrote, measured from inside its optimizer steps.

The loop runs unchanged. torch calls a hook after each optimizer step; the measurement goes on there
by one step, and ends the loop by an exception when it has what it needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from dtsweep.hardware.memory import peak_bytes, reserved_peak_bytes, restart_peak
from dtsweep.measure.clock import Clock, Times, clock_for
from dtsweep.measure.stopping import Rule
from dtsweep.measure.store_group import StoreGroup
from dtsweep.measure.window import Peers, Window
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.task import Task
from dtsweep.worker.gradients import AGREE, sums_and_norms
from dtsweep.worker.loader_watch import LoaderWatch, samples_per_step
from dtsweep.worker.loop import without_collector
from dtsweep.worker.optimizer_steps import OptimizerSteps
from dtsweep.worker.rank import RankContext

CHECKED_STEPS = 2
"""Steps after the window in which the gradients of all ranks are compared."""


class LoopEnded(BaseException):  # no error: it ends a loop that is measured
    """Raised in the user's training loop when it is measured; no `Exception`, which loops catch."""


class LoopTooShortError(RuntimeError):
    """The training loop ended before it was measured."""


@dataclass(kw_only=True)
class _Part:
    """Steps of one part of the measurement."""

    name: str
    times: Times
    began: float


class OwnLoop:
    """Measures one training loop on one rank."""

    def __init__(
        self,
        task: Task,
        context: RankContext,
        group: StoreGroup,
        *,
        on_warm: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Prepare to measure.

        Args:
            task: the trial; its workload is the loop.
            context: this rank.
            group: all ranks of the trial.
            on_warm: called with the slowest warm-up step in seconds, just before the window.
        """
        self._task = task
        self._context = context
        self._group = group
        self._on_warm = on_warm
        self._clock: Clock = clock_for(context.device)
        self._steps = OptimizerSteps(self._on_step)
        self._loaders = LoaderWatch(self._mark)
        self._parts: list[_Part] = []
        self._skipped = 0
        self._taken = 0
        self._measured: Measured | None = None
        self._contexts = ExitStack()
        self._is_timing = False
        self._plan = self._measure()

    def run(self, train: Callable[[], object]) -> Measured:
        """Run a training loop until it is measured.

        Raises:
            LoopTooShortError: it ended before.
        """
        began = time.perf_counter()
        restart_peak(self._context.device)
        # Up to the first step.
        next(self._plan)
        try:
            with self._steps.watched(), self._loaders.watched():
                train()
        except LoopEnded:
            pass
        finally:
            self._plan.close()
            self._contexts.close()
        if self._measured is None:
            raise LoopTooShortError(
                f"the training loop ended after {self._taken} optimizer steps, before it was "
                "measured; give it more data or epochs"
            )
        build_s = self._first_step_at - began
        return replace(self._measured, build_s=build_s)

    def _on_step(self, optimizer: Optimizer, is_skipped: bool) -> None:  # a callback
        """Note a step of the loop, and go on with the measurement."""
        if self._measured is not None:
            # Raised again where a loop has caught the first one.
            raise LoopEnded
        if not self._taken:
            self._first_step_at = time.perf_counter()
        self._taken += 1
        self._skipped += is_skipped
        self._optimizer = optimizer
        self._clock.mark("loop")
        self._clock.end_step()
        try:
            next(self._plan)
        except StopIteration:
            self._steps.follows_all = True
            raise LoopEnded from None

    def _mark(self, phase: str) -> None:
        """Divide a step into waiting for batches and the rest."""
        if self._is_timing:
            self._clock.mark(phase)

    def _measure(self) -> Generator[None, None, None]:
        """The measurement, which goes on by one optimizer step of the loop at each `yield`."""
        measure = self._task.measure
        # The step that is under way began long ago, with imports and the model.
        self._clock.start()
        yield
        began_warmup = time.perf_counter()
        yield from self._timed("warmup", iter(range(max(1, measure.warmup_steps - 1))))
        warm = self._parts[-1].times["step_s"]
        slowest_s, period_s = self._group.largest(float(warm.max()), float(np.median(warm)))
        self._on_warm(slowest_s)
        warmup_s = time.perf_counter() - began_warmup
        window = self._window(period_s)
        self._contexts.enter_context(self._context.telemetry.sampled())
        self._contexts.enter_context(without_collector(keep=measure.gc))
        self._group.barrier()
        self._context.telemetry.start()
        self._group.barrier()
        self._loaders.restart()
        self._skipped = 0
        window_s = yield from self._timed("window", iter(window))
        seen = self._context.telemetry.stop()
        counts, skipped = self._loaders.counts(), self._skipped
        self._contexts.close()
        device = self._context.device
        peak, reserved_peak = peak_bytes(device), reserved_peak_bytes(device)
        self._group.barrier()
        window.forget()
        began_checks = time.perf_counter()
        checked = yield from self._compared()
        samples = samples_per_step(counts, steps=window.steps)
        flags = seen.pop("telemetry_flags")
        if skipped:
            flags = [*flags, "skipped_updates"]
        self._measured = Measured(
            steps=self._columns(),
            window_s=window_s,
            window_steps=window.steps,
            skipped_steps=len(warm),
            stop_reason=window.reason,
            flags=flags,
            threads=torch.get_num_threads(),
            telemetry=seen,
            warmup_s=warmup_s,
            after_window_s=time.perf_counter() - began_checks,
            samples_per_step=samples.mean,
            usual_samples=samples.usual,
            samples_reason=samples.reason,
            memory_peak_bytes=peak,
            memory_reserved_peak_bytes=reserved_peak,
            **self._facts(),
            **checked,
        )

    def _timed(self, name: str, steps: Iterator[int]) -> Generator[None, None, float]:
        """Time steps of the loop as one part; returns the seconds from its start to its end."""
        self._clock.start()
        self._is_timing = True
        for _ in steps:
            yield
        self._is_timing = False
        seconds = self._clock.stop()
        self._parts.append(_Part(name=name, times=self._clock.times(), began=self._clock.began))
        return seconds

    def _window(self, period_s: float) -> Window:
        rule = Rule(self._task.measure, period=1, period_s=period_s, race=None)
        rule.rehearse()
        return Window(
            self._task.measure,
            rule,
            self._clock.so_far,
            peers=Peers(rank=self._group.rank, store=self._group.store),
        )

    def _compared(self) -> Generator[None, None, dict[str, Any]]:
        """Compare gradients and parameters of all ranks in steps after the window.

        Returns `gradients_agree`, `parameters_agree` and `gradients_reason` of `Measured`.
        """
        if self._group.workers == 1:
            return {}
        yield
        gradients = [_whole(p.grad) for p in self._trained()]
        parameters = [_whole(p.detach()) for p in self._trained()]
        gradients_agree, parameters_agree = (
            _agree(self._group.gathered(_sums(tensors))) for tensors in (gradients, parameters)
        )
        return {"gradients_agree": gradients_agree, "parameters_agree": parameters_agree}

    def _trained(self) -> list[torch.nn.Parameter]:
        groups = self._optimizer.param_groups
        return [p for group in groups for p in group["params"] if p.grad is not None]

    def _facts(self) -> dict[str, Any]:
        """Facts that the optimizer has."""
        groups = self._optimizer.param_groups
        return {
            "parameters": sum(p.numel() for group in groups for p in group["params"]),
            "optimizer_class": type(self._optimizer).__name__,
        }

    def _columns(self) -> dict[str, np.ndarray]:
        """Columns of `steps`, part after part; starts count from the window's."""
        window = next(part for part in reversed(self._parts) if part.name == "window")
        names = dict.fromkeys(name for part in self._parts for name in part.times)
        counts = [len(part.times["step_s"]) for part in self._parts]
        columns: dict[str, Any] = {}
        for name in names:
            columns[name] = np.concatenate(
                [
                    part.times.get(name, np.zeros(count))
                    for part, count in zip(self._parts, counts, strict=True)
                ]
            )
        columns["start_s"] = np.concatenate(
            [part.times["start_s"] + part.began - window.began for part in self._parts]
        )
        columns["part"] = np.repeat([part.name for part in self._parts], counts)
        columns["block"] = np.full(sum(counts), -1)
        columns["step"] = np.arange(sum(counts))
        columns["loss"] = np.full(sum(counts), np.nan)
        return columns


def _whole(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A tensor of the whole model: of one in shards, the shards of all ranks."""
    if isinstance(tensor, DTensor):
        return tensor.full_tensor()
    return tensor


def _sums(tensors: list[torch.Tensor | None]) -> list[list[float]]:
    counts = [0 if tensor is None else tensor.numel() for tensor in tensors]
    rows: list[list[float]] = sums_and_norms(tensors, counts=counts).tolist()
    return rows


def _agree(of_ranks: list[list[list[float]]]) -> bool | None:
    """True if the ranks' tensors are the same but for rounding; None where there are none."""
    if any(len(rows) != len(of_ranks[0]) for rows in of_ranks):
        return False
    values = np.array(of_ranks)
    if not values.size:
        return None
    totals, norms, counts = values[..., 0], values[..., 1], values[..., 2]
    scale = np.maximum(norms.max(axis=0), 1e-300)
    difference = np.maximum(np.ptp(norms, axis=0), np.ptp(totals, axis=0) / np.sqrt(counts[0] + 1))
    return bool((difference / scale <= AGREE).all())
