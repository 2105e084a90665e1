"""Steps after a window: checks, counts, and the cost of the exchange."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from torch import nn

from dtsweep.measure.isolated_exchange import max_over_ranks, mean_over_ranks
from dtsweep.measure.traffic import Counting
from dtsweep.sweep.point_axes import CHOSEN_FIELDS
from dtsweep.sweep.task import Task
from dtsweep.sync.mode import Job, SyncMode
from dtsweep.worker.exchange_cost import WindowTime, time_exchange
from dtsweep.worker.gradients import IN_SHARDS, StepRecord
from dtsweep.worker.idle_time import idle_in_window, queued_idle
from dtsweep.worker.in_step import store_of, store_of_others, together
from dtsweep.worker.loop import ModeLoop
from dtsweep.worker.stages import Steps


class ModeStages:
    """Stages after the window of a trial in a sync mode; see `Stages`."""

    def __init__(
        self,
        loop: ModeLoop,
        model: nn.Module,
        task: Task,
        window: WindowTime,
        exchanges: dict[Hashable, dict[str, Any]],
    ) -> None:
        """Prepare them.

        Args:
            loop: after its window.
            model: that it trains, without the mode's wrapper.
            task: the trial.
            window: that was measured.
            exchanges: times of isolated exchanges that this world has measured.
        """
        self._loop = loop
        self._model = model
        self._task = task
        self._window = window
        self._exchanges = exchanges
        self._can_restart = loop.job.point.mode.can_restart
        self.fields: dict[str, Any] = {}
        """Fields of `Measured`."""

    @property
    def goes_on(self) -> bool:
        """True if the checks found nothing wrong, and this is not a canary."""
        agree = (self.fields.get("gradients_agree"), self.fields.get("parameters_agree"))
        return not self._task.is_canary and False not in agree

    def checks(self) -> Steps:
        """Inspect a step."""
        if self._task.is_canary:
            return
        self.fields |= idle_in_window(self._loop)
        if self._task.point.workers > 1 and self._can_restart:
            self.fields |= _inspect_step(
                self._loop, self._model, self._task, window_steps=self._window.steps
            )
        yield from ()

    def idle(self) -> None:
        """Queue some steps where the window leaves much open."""
        self.fields |= queued_idle(self._loop, self._task, self._window)

    def compression(self) -> None:
        """Compare a compressed exchange with that of the values themselves."""
        if self._task.point.compression:
            self.fields["compression_error"] = _compression_error(self._loop, self._task)

    def exchange(self, spent_s: float) -> Steps:
        """Time steps without the exchange, and the exchange alone."""
        isolated = self._exchanges.setdefault(_exchange_key(self._loop.job, self._model), {})
        self.fields |= time_exchange(
            self._loop, self._task, self._window, spent_s=spent_s, isolated=isolated
        )
        yield from ()

    def note_failure(self, reason: str) -> None:
        """Set the reason of a failed step for all fields that are not known yet."""
        # Of the loop, which knows its workload: a mode of its own declares what agrees.
        fields, point = self.fields, self._loop.job.point
        if "device_idle_low" in fields:
            fields.setdefault("device_idle_reason", reason)
        compares = point.workers > 1 and point.mode.agree != "nothing"
        if compares and "parameters_agree" not in fields:
            fields["gradients_reason"] = reason
        # Whole rounds that came before it stay.
        has_turns = any(segment.name == "no_exchange" for segment in self._loop.segments)
        if point.workers > 1 and point.mode.can_leave_out and not has_turns:
            fields["exchange_reason"] = reason


def _exchange_key(job: Job, model: nn.Module) -> Hashable:
    """Key of all trials in a world whose exchange alone takes as long."""
    point = job.point
    parameters = [(p.shape, p.dtype, p.requires_grad) for p in model.parameters()]
    fields = [getattr(point, name) for name in CHOSEN_FIELDS]
    options = repr(sorted(job.ddp_options.items()))
    return (point.sync, point.compression, point.precision, *fields, *parameters, options)


def _inspect_step(
    loop: ModeLoop, model: nn.Module, task: Task, *, window_steps: int
) -> dict[str, Any]:
    """Do one more step; count what it sends, and compare the gradients that ranks then have.

    In modes with a sync period two steps: one without an exchange of the mode's own, which stands
    for all of them, and the last one of the period. Where the workload counts the steps of a period
    itself, all of them.

    Returns:
        `bytes_sent` and `messages_sent` of `Measured`, for the window; `gradients_agree`,
        `parameters_agree`, `gradients_reason` and `traffic_reason`.

    Raises:
        StepError: the step failed.
    """
    point = loop.job.point
    info = point.mode
    steps = point.period
    if not loop.mode.counts_periods:
        steps = min(steps, 2)
    counts = [Counting() for _ in range(steps)]
    record = None
    if info.agree != "nothing":
        record = StepRecord(loop.job, loop.mode, model)
    fields: dict[str, Any] = {}

    def work() -> None:
        # The last of these steps ends a period, as the window did.
        loop.mode.begin_period(point.period - len(counts))
        with record or contextlib.nullcontext():
            for counting in counts:
                with counting:
                    if record:
                        loop.step(through=record.through)
                    else:
                        loop.step()
                loop.clock.end_step()
            # A mode whose exchange is under way between steps makes its last update here.
            loop.end_run()

    with _calls_counted(model) as calls:
        together(work, store=store_of(task, "inspected"))
    if record:
        fields |= record.compared()
    if info.shards:
        fields["gradients_reason"] = fields.get("gradients_reason") or IN_SHARDS
    sent = _sent_in_window(counts, period=point.period, window_steps=window_steps)
    per_step = None
    if sent:
        per_step = sent["bytes_sent"] / window_steps
    reason = _traffic_reason(loop.job, loop.mode, model, per_step, calls=calls[0])
    return {**fields, **sent, "traffic_reason": reason}


def _sent_in_window(counts: list[Counting], *, period: int, window_steps: int) -> dict[str, Any]:
    """`bytes_sent` and `messages_sent` of a window, from counts of a period, or of its ends."""
    if unknown := sorted({call for counting in counts for call in counting.unknown}):
        print(f"bytes and messages sent are unknown: {', '.join(unknown)}", file=sys.stderr)  # noqa: T201  # the rank's log
        return {}
    times = [1] * len(counts)
    # The first of two stands for all steps of the period but the last.
    if len(counts) < period:
        times = [period - 1, 1]
    sent_bytes, messages = Fraction(0), 0
    for counting, count in zip(counts, times, strict=True):
        sent_bytes += (counting.bytes_sent or 0) * count
        messages += (counting.messages_sent or 0) * count
    return {
        "bytes_sent": round(sent_bytes * window_steps / period),
        "messages_sent": round(messages * window_steps / period),
    }


def _compression_error(loop: ModeLoop, task: Task) -> float | None:
    """Run one more period, and compare its exchange with the exchange of uncompressed values.

    Returns:
        `compression_error` of `Measured`, the same on all ranks.

    Raises:
        StepError: a step failed.
    """
    seen: list[float] = []
    store = store_of_others(task, "compression")

    def work() -> None:
        loop.mode.watch()
        for _ in range(loop.job.point.period):
            loop.step()
            loop.clock.end_step()
        loop.end_run()
        seen.extend(loop.mode.seen())

    together(work, store=store)
    if store is None:
        means = np.array(seen)
    else:
        means = mean_over_ranks(loop.job.device, np.array(seen))
    squared_error, squared_norm = map(float, means)
    if not squared_norm or not math.isfinite(squared_error / squared_norm):
        return None
    return math.sqrt(squared_error / squared_norm)


_TOLERANCE = 0.05
"""Largest difference of the sent bytes from the mode's formula, as a share of it."""

_BYTES_PER_PARAMETER = 16
"""Largest size of what wrappers exchange about each parameter, such as whether it was used."""

_BYTES_PER_STEP = 64
"""Largest size of what a step exchanges besides, such as norms and sums of weights."""


@contextlib.contextmanager
def _calls_counted(model: nn.Module) -> Iterator[list[int]]:
    """Count the calls of a model in this context: the number in a list of one."""
    calls = [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    handle = model.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        handle.remove()


def _traffic_reason(
    job: Job, mode: SyncMode, model: nn.Module, sent: float | None, *, calls: int
) -> str | None:
    """Compare what workers send in a step with the formula of their mode; called on all ranks.

    Args:
        job: the trial.
        mode: that trains it.
        model: that is trained, without the mode's wrapper.
        sent: bytes that this rank sends in a step; None if unknown.
        calls: of the model in a step on this rank; DDP may send buffers before each.

    Returns:
        What differs, with the next step, the same on all ranks; None if nothing does, or if the
        mode has no formula for this trial.
    """
    expected = mode.expected_bytes()
    # The same on all ranks, so that none is missing below.
    if expected is None or job.point.compression:
        return None
    mean = float(mean_over_ranks(job.device, np.array([np.nan if sent is None else sent]))[0])
    (most_calls,) = max_over_ranks(job.device, calls)
    if np.isnan(mean):
        return None
    extra = sum(buffer.nbytes for buffer in model.buffers()) * most_calls
    extra += _BYTES_PER_PARAMETER * len(list(model.parameters())) + _BYTES_PER_STEP
    words = f"a worker sends {mean:,.0f} bytes per step, {job.point.sync} {expected:,.0f}"
    if mean < expected * (1 - _TOLERANCE):
        return f"{words}: not all gradients are exchanged; in loss, call model(...) itself"
    if mean > expected * (1 + _TOLERANCE) + extra and not _exchanges_by_itself(job, model):
        return (
            f"{words}: build, loss, a hook or the optimizer exchanges as well, for example by a "
            "DistributedDataParallel of its own; if that is meant, declare exchanges = True in the "
            "workload"
        )
    return None


def _exchanges_by_itself(job: Job, model: nn.Module) -> bool:
    """True if a model is known to exchange, or the workload says so."""
    if getattr(job.point.workload, "exchanges", False):
        return True
    return any(isinstance(module, nn.SyncBatchNorm) for module in model.modules())
