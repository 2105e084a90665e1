"""Idle time of a rank's GPU: by the window, and where that is not enough by some queued steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dtsweep.measure.device_idle import (
    LEAST,
    MORE_S,
    OWN_PHASES,
    Idle,
    QueuedClock,
    idle_share,
    most_idle_share,
)
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.sweep.task import Task
from dtsweep.worker.exchange_cost import WindowTime
from dtsweep.worker.in_step import store_of_others, together
from dtsweep.worker.loop import ModeLoop, window_of, without_collector

_QUEUED_STEPS = 7
"""Steps that are queued at least; the first two show how long the pauses have to be."""

_LONGEST_S = 10.0
"""Time limit of these steps."""

_QUEUE_WAITS = (
    "{} can't be queued ahead: the host waits for the device there, or launches more than its "
    "queue holds"
)
_CAPPED = "the GPU lowers its clock ({}), and may be faster after a pause: there is no lower limit"
TOO_LONG = f"steps that are queued ahead would take more than {_LONGEST_S:g} s"
NO_STEPS = "no steps can follow the window"
_DRAWN = "other workers are drawn for queued steps than for those of the window"


def idle_in_window(loop: ModeLoop) -> dict[str, Any]:
    """Limits of the share of a step in which this rank's GPU had no work, by the window alone.

    Returns:
        `device_idle_low` and `device_idle_high` of `Measured`; nothing on a CPU.
    """
    segment = window_of(loop.segments)
    if not segment.most_idle or loop.trained_steps() == 0:
        return {}
    times, most_idle = segment.times, segment.most_idle
    if loop.job.point.draws_participants:
        trains = [loss is not None for loss in segment.losses]
        times = {name: values[trains] for name, values in times.items()}
        most_idle = {name: values[trains] for name, values in most_idle.items()}
    return {"device_idle_low": 0.0, "device_idle_high": most_idle_share(times, most_idle)}


def queued_idle(loop: ModeLoop, task: Task, window: WindowTime) -> dict[str, Any]:
    """Closer limits of that share, by some more steps, where the window leaves much open.

    The loop has a whole sync period behind it.

    Returns:
        `device_idle_low`, `device_idle_high` and `device_idle_reason` of `Measured`, or some of
        them; nothing on a CPU.

    Raises:
        StepError: a step failed.
        OrderError: ranks took blocks in different orders.
    """
    segment = window_of(loop.segments)
    if not segment.most_idle:
        return {}
    times, most_idle = segment.times, segment.most_idle
    point = task.point
    most = most_idle_share(times, most_idle)
    step_s = float(times["step_s"].mean())
    if point.workers > 1:
        # All ranks take the same steps.
        most, step_s = max_over_ranks(loop.job.device, most, step_s)
    if most < LEAST:
        # The window's limits are close enough.
        return {"device_idle_reason": None}
    if not point.mode.can_restart:
        return {"device_idle_reason": NO_STEPS}
    if point.draws_participants:
        return {"device_idle_reason": _DRAWN}
    steps = math.ceil(_QUEUED_STEPS / point.period) * point.period
    pauses_s = (len(OWN_PHASES) * point.accumulation + 2) * MORE_S
    if steps * (3 * step_s + pauses_s) > _LONGEST_S:
        return {"device_idle_reason": TOO_LONG}
    clocks: list[QueuedClock] = []

    def work() -> None:
        clocks.append(QueuedClock(loop.job.device))
        for _ in range(steps):
            loop.step(clock=clocks[0])
            clocks[0].end_step()
        loop.end_run()

    with without_collector(keep=task.measure.gc):
        together(work, store=store_of_others(task, "queued"))
    idle = idle_share(times, most_idle, *clocks[0].queued(), has_peers=point.workers > 1)
    return _columns_of(idle, window.limits)


def _columns_of(idle: Idle, limits: Sequence[str]) -> dict[str, Any]:
    """Columns of queued steps on a GPU that had these reasons for a lower clock in the window."""
    low = idle.low
    reasons = []
    if idle.unknown:
        reasons.append(_QUEUE_WAITS.format(" and ".join(idle.unknown)))
    if limits and low > 0:
        low = 0.0
        reasons.append(_CAPPED.format(", ".join(limits)))
    return {
        "device_idle_low": low,
        "device_idle_high": idle.high,
        "device_idle_reason": "; ".join(reasons) or None,
    }
