"""A training loop that somebody else wrote, measured from inside its optimizer steps.

The loop runs unchanged. torch calls a hook after each optimizer step; the measurement goes on there
by one step, and ends the loop by an exception when it has what it needs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from dataclasses import replace

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dtsweep.errors import error_line
from dtsweep.hardware.memory import peak_bytes, reserved_peak_bytes, restart_peak
from dtsweep.loops.loader_watch import LoaderWatch, samples_per_step
from dtsweep.loops.no_steps import NoSteps, NoStepsError, raise_past_handlers, tracing_kept
from dtsweep.loops.optimizer_steps import OptimizerSteps
from dtsweep.loops.own_after import AfterWindow, Watched
from dtsweep.loops.own_facts import data_ranks, hooks_of
from dtsweep.loops.own_parts import TimedParts
from dtsweep.measure.stopping import LEAST_STEPS, Rule
from dtsweep.measure.store_group import GaveUpError, StoreGroup
from dtsweep.measure.window import Peers, Window
from dtsweep.metrics.own_loops import TOO_SHORT
from dtsweep.metrics.rank_result import Measured
from dtsweep.secret import print_traceback
from dtsweep.sweep.task import Task
from dtsweep.sweep.values import is_own_loop
from dtsweep.text import count_of
from dtsweep.worker.exchange_cost import WindowTime
from dtsweep.worker.gradients import StepSums, calls_since, collectives
from dtsweep.worker.loop import without_collector
from dtsweep.worker.rank import RankContext

_OTHERS_END_S = 120.0
"""A rank whose loop has ended waits so long for the other ranks' ends."""

_OVER_TIME = frozenset(
    {
        "process_cpus",
        "host_cpu_share",
        "network_sent_bytes",
        "network_received_bytes",
        "cpu_energy_j",
        "energy_j",
        "power_w",
    }
)
"""Columns of telemetry that are sums or means over a time."""

ENDED = "the training loop ended soon after the window; give it more data or epochs"


class _LoopEnded(BaseException):  # no error: it ends a loop that is measured
    """Raised in the user's training loop when it is measured; no `Exception`, which loops catch."""


class LoopTooShortError(RuntimeError):
    """The training loop ended before it was measured."""

    is_whole_reason = True


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
        """Prepare to measure."""
        self._task = task
        self._context = context
        self._group = group
        self._point = task.point_of(context.workload)
        self._on_warm = on_warm
        self._first_sums = StepSums(group.rank)
        self._parts = TimedParts(context.device)
        self._steps = OptimizerSteps(self._on_step)
        self._steps.on_loss = self._parts.note_loss
        workload = self._point.workload
        settings = workload.loader if is_own_loop(workload) else {}
        self._loaders = LoaderWatch(self._parts.mark, settings)
        self._skipped = 0
        self._taken = 0
        self._measured: Measured | None = None
        self._after: AfterWindow | None = None
        self._is_done = False
        self._window_begun: Window | None = None
        self._gave_up: GaveUpError | None = None
        self._contexts = ExitStack()
        self._plan = self._measure()

    @property
    def steps_begun(self) -> int:
        """Steps of the loop that have begun: its first one begins with it."""
        return self._taken

    def run(self, train: Callable[[], object]) -> Measured:
        """Run a training loop until it is measured.

        Raises:
            LoopTooShortError: it ended before.
        """
        began = time.perf_counter()
        restart_peak(self._context.device)
        # Up to the first step.
        next(self._plan)
        if self._context.watch is not None:
            self._context.watch.follow(self)
        no_steps = NoSteps(lambda: self._taken)
        try:
            with self._steps.watched(), self._loaders.watched(), tracing_kept(), no_steps.watched():
                train()
            if self._measured is None and self._gave_up is None:
                self._measure_what_ran()
        except _LoopEnded:
            pass
        except Exception as error:
            if no_steps.reason is not None:
                raise NoStepsError(no_steps.reason) from error
            if self._measured is None:
                raise
            # The trial is measured: what fails after that must not cost it.
            print_traceback(error)
            self._give_up(f"a step after the window failed: {error_line(error)}")
        finally:
            self._plan.close()
            self._contexts.close()
            if self._measured is None:
                # A lost store must not hide the error of the loop.
                with suppress(RuntimeError):
                    if self._window_begun is not None:
                        self._window_begun.give_up()
                    self._group.give_up(f"rank {self._group.rank} ended before it was measured")
        if self._gave_up is not None:
            raise self._gave_up
        assert self._measured is not None and self._after is not None, "else it raised"
        if not self._is_done:
            self._give_up(ENDED)
        return replace(
            self._measured,
            build_s=self._first_step_at - began,
            steps=self._parts.columns(),
            flags=[*self._measured.flags, *self._after.flags, *self._of_losses],
            **self._after.fields,
        )

    @property
    def _of_losses(self) -> list[str]:
        return ["summed_losses"] if self._parts.has_sums else []

    def _measure_what_ran(self) -> None:
        """Measure the steps that a loop had that has ended, where they are enough.

        Raises:
            LoopTooShortError: they are not, or other workers have more.
        """
        measure = self._task.measure
        least = min(measure.min_steps, LEAST_STEPS)
        warmup = max(2, measure.warmup_steps)
        missing = warmup + least - self._taken
        if missing > 0 or self._window_begun is None:
            raise LoopTooShortError(
                f"the training loop ended after {count_of(self._taken, 'optimizer step')}, "
                f"{TOO_SHORT}: {max(missing, 1)} more are needed, for {warmup} steps of warm-up "
                f"and {least} timed ones, and more for a precise answer; give it more epochs or "
                "data"
            )
        self._group.wait_up_to(_OTHERS_END_S)
        self._window_begun.end()
        try:
            next(self._plan)
        except GaveUpError:
            raise
        except RuntimeError as error:  # of the store, whose time limit is over
            raise LoopTooShortError(
                f"the training loop ended after {count_of(self._taken, 'optimizer step')} on rank "
                f"{self._group.rank}, {TOO_SHORT}, and those of other ranks did not end within "
                f"{_OTHERS_END_S:.0f} s; give all ranks as many batches, and do little after the "
                "last step"
            ) from error
        self._judge_first_step()

    def _note_first_step(self) -> Generator[None, None, None]:
        """Note what the first step updates, for a loop that ends with its window."""
        if self._group.workers > 1:
            self._loaders.begin_digest()
            self._steps.on_begin = self._first_sums.begin
            self._steps.on_end = self._first_sums.end
        # It began long ago, with imports and the model.
        yield
        if self._group.workers > 1:
            self._steps.on_begin = self._steps.on_end = None
            self._first_batches = self._loaders.digest()
            groups = self._optimizer.param_groups
            trained = {id(p) for group in groups for p in group["params"]}
            # Others may be left of earlier loops.
            models = [
                model
                for model in gc.get_objects()
                if type(model) is DistributedDataParallel
                and any(id(p) in trained for p in model.parameters())
            ]
            self._data_ranks = data_ranks(models)
            self._has_hooks = bool(hooks_of(models))

    def _judge_first_step(self) -> None:
        """Say that the updates are exact, if those of the first step were."""
        assert self._after is not None, "the window has ended"
        if self._group.workers == 1:
            return
        sent = {
            **self._first_sums.as_json(),
            "collectives": self._after.collectives,
            "batches": self._first_batches,
            "data_ranks": self._data_ranks,
            "model": None,
        }
        verdict = self._group.decided(sent, self._after.watched.judge(may_go_on=False))
        del verdict["goes_on"]
        if verdict["semantics"] != "exact" or self._has_hooks:
            # Of other updates one step doesn't say what they are.
            verdict = {"ranks_per_model": verdict["ranks_per_model"], "gradients_reason": ENDED}
        self._after.note_verdict(verdict)

    def _give_up(self, reason: str) -> None:
        """End what follows the window, here and on other ranks."""
        if self._is_done or self._after is None:
            return
        self._is_done = True
        self._after.note_failure(reason)
        self._group.give_up(f"rank {self._group.rank}: {reason}")

    def _on_step(self, optimizer: Optimizer, is_skipped: bool) -> None:  # a callback
        """Note a step of the loop, and go on with the measurement."""
        if self._is_done:
            # A library, or another thread, has caught the first one.
            raise_past_handlers(_LoopEnded())
        if not self._taken:
            self._first_step_at = time.perf_counter()
        self._taken += 1
        self._skipped += is_skipped
        self._optimizer = optimizer
        self._parts.end_step()
        self._loaders.end_step()
        try:
            next(self._plan)
        except StopIteration:
            self._is_done = True
            self._steps.follows_all = True
            # Not only where a handler has caught it: ranks would part at other steps.
            raise_past_handlers(_LoopEnded())
        except GaveUpError as error:
            # A handler of the loop must not hide that another rank has ended.
            self._gave_up, self._is_done = error, True
            raise_past_handlers(_LoopEnded())

    def _measure(self) -> Generator[None, None, None]:
        """The measurement, which goes on by one optimizer step of the loop at each `yield`."""
        measure = self._task.measure
        yield from self._note_first_step()
        began_warmup = time.perf_counter()
        yield from self._parts.timed("warmup", iter(range(max(1, measure.warmup_steps - 1))))
        warm = self._parts.last("warmup").times["step_s"]
        slowest_s, period_s = self._group.largest(float(warm.max()), float(np.median(warm)))
        self._on_warm(slowest_s)
        warmup_s = time.perf_counter() - began_warmup
        self._window_begun = window = self._window(period_s)
        # To the end: what is collected after a window takes as long as many steps.
        self._contexts.enter_context(without_collector(keep=measure.gc))
        with self._context.telemetry.sampled():
            self._group.barrier()
            self._context.telemetry.start()
            self._group.barrier()
            self._loaders.restart()
            self._skipped = 0
            calls = collectives()
            window_s = yield from self._parts.timed("window", iter(window))
            calls = calls_since(calls)
            seen = self._context.telemetry.stop()
            counts, skipped = self._loaders.counts(), self._skipped
        if window.has_ended:
            # What the loop did after its last step is not a part of any.
            window_s = float(self._parts.last("window").times["step_s"].sum())
            seen |= dict.fromkeys(_OVER_TIME & seen.keys())
        device = self._context.device
        peak, reserved_peak = peak_bytes(device), reserved_peak_bytes(device)
        # All ranks have left the window.
        longest_s, most, fewest = self._group.largest(window_s, window.steps, -window.steps)
        if most + fewest:
            raise LoopTooShortError(
                f"the training loop ended on some ranks {TOO_SHORT}, after {-fewest:.0f} to "
                f"{most:.0f} timed steps; give all ranks as many batches"
            )
        window.forget()
        samples = samples_per_step(counts, steps=window.steps)
        flags = seen.pop("telemetry_flags")
        if skipped:
            flags = [*flags, "skipped_updates"]
        rate = self._optimizer.param_groups[0].get("lr")
        self._measured = Measured(
            steps={},
            window_s=window_s,
            window_steps=window.steps,
            skipped_steps=len(warm),
            stop_reason=window.reason,
            flags=flags,
            threads=torch.get_num_threads(),
            telemetry=seen,
            warmup_s=warmup_s,
            samples_per_step=samples.mean,
            usual_samples=samples.usual,
            samples_reason=samples.reason,
            untaken=self._loaders.untaken,
            memory_peak_bytes=peak,
            memory_reserved_peak_bytes=reserved_peak,
            optimizer_class=type(self._optimizer).__name__,
            loop_learning_rate=None if rate is None else float(rate),
        )
        window_time = WindowTime(window_s=longest_s, steps=window.steps)
        yield from self._follow(window_time, calls)

    def _follow(self, window: WindowTime, calls: int | None) -> Generator[None, None, None]:
        """Do what follows the window."""
        began = time.perf_counter()
        watched = Watched(
            task=self._task,
            device=self._context.device,
            group=self._group,
            steps=self._steps,
            loaders=self._loaders,
            parts=self._parts,
            grid=self._point.named_grid,
        )
        self._after = AfterWindow(watched, window, calls)
        yield from self._after.run()
        self._after.fields["after_window_s"] = time.perf_counter() - began

    def _window(self, period_s: float) -> Window:
        rule = Rule(self._task.measure, period=1, period_s=period_s)
        rule.rehearse()
        return Window(
            self._task.measure,
            rule,
            self._parts.so_far,
            peers=Peers(rank=self._group.rank, store=self._group.store),
        )
