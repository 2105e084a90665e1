"""Outside the window: whether workers send what their mode sends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import nn

from dtsweep.measure.isolated_exchange import max_over_ranks, mean_over_ranks
from dtsweep.sync.mode import Job, SyncMode

TOLERANCE = 0.05
"""Largest difference of the sent bytes from the mode's formula, as a share of it."""

BYTES_PER_PARAMETER = 16
"""Largest size of what wrappers exchange about each parameter, such as whether it was used."""

BYTES_PER_STEP = 64
"""Largest size of what a step exchanges besides, such as norms and sums of weights."""


@contextlib.contextmanager
def calls_counted(model: nn.Module) -> Iterator[list[int]]:
    """Count the calls of a model in this context: the number in a list of one."""
    calls = [0]

    def count(*_: Any) -> None:
        calls[0] += 1

    handle = model.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        handle.remove()


def traffic_reason(
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
    extra += BYTES_PER_PARAMETER * len(list(model.parameters())) + BYTES_PER_STEP
    words = f"a worker sends {mean:,.0f} bytes per step, {job.point.sync} {expected:,.0f}"
    if mean < expected * (1 - TOLERANCE):
        return f"{words}: not all gradients are exchanged; in loss, call model(...) itself"
    if mean > expected * (1 + TOLERANCE) + extra and not _exchanges_by_itself(job, model):
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
