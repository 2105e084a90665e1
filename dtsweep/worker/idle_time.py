"""Idle time of a rank's GPU: by the window, and where that is not enough by some queued steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.measure.device_idle import LEAST, Idle, QueuedClock, idle_share, most_idle_share
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.task import Task
from dtsweep.worker.exchange_cost import WindowTime
from dtsweep.worker.in_step import StepError, store_of_others, together
from dtsweep.worker.loop import Loop

QUEUED_STEPS = 7
"""Steps that are queued; the first two show how long the pauses have to be."""

LONGEST_S = 10.0
"""Time limit of these steps: with its pauses a step takes up to three times as long."""

QUEUE_WAITS = (
    "{} can't be queued ahead: the host waits for the device there, or launches more than its "
    "queue holds"
)
CAPPED = "the GPU lowers its clock ({}), which it would not do after a pause: no lower limit"


def idle_columns(loop: Loop, task: Task, window: WindowTime) -> dict[str, Any]:
    """Share of a step in which this rank's GPU had no work.

    Args:
        loop: after its window, with a whole sync period behind it.
        task: the trial.
        window: that was measured.

    Returns:
        `device_idle_low`, `device_idle_high` and `device_idle_reason` of `Measured`; nothing on a
        CPU.

    Raises:
        OrderError: ranks took blocks in different orders.
    """
    segment = next(segment for segment in reversed(loop.segments) if segment.name == "window")
    if not segment.most_idle:
        return {}
    times, most_idle = segment.times, segment.most_idle
    idle = idle_share(times, most_idle)
    if not MODES[task.point.sync].can_restart:
        return _columns_of(idle, window.limits)
    most = most_idle_share(times, most_idle)
    step_s = float(times["step_s"].mean())
    if task.point.workers > 1:
        # All ranks take the same steps.
        most, step_s = max_over_ranks(loop.job.device, most, step_s)
    period = loop.job.point.period
    steps = math.ceil(QUEUED_STEPS / period) * period
    if most < LEAST or 3 * steps * step_s > LONGEST_S:
        return _columns_of(idle, window.limits)
    clocks: list[QueuedClock] = []

    def work() -> None:
        clocks.append(QueuedClock(loop.job.device))
        for _ in range(steps):
            loop.step(clock=clocks[0])
            clocks[0].end_step()

    try:
        together(work, store=store_of_others(task, "queued"))
    except StepError as error:
        return _columns_of(idle, window.limits) | {"device_idle_reason": str(error)}
    queued = idle_share(times, most_idle, *clocks[0].queued(), has_peers=task.point.workers > 1)
    return _columns_of(queued, window.limits)


def _columns_of(idle: Idle, limits: Sequence[str]) -> dict[str, Any]:
    """Columns of idle time on a GPU whose clock had these limits."""
    reason = None
    if idle.unknown:
        reason = QUEUE_WAITS.format(" and ".join(idle.unknown))
    low = idle.low
    if limits and low > 0:
        low = 0.0
        reason = CAPPED.format(", ".join(limits))
    return {
        "device_idle_low": low,
        "device_idle_high": idle.high,
        "device_idle_reason": reason,
    }
