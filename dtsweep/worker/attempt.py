"""One rank: builds a trial, warms it up, times its window. Knows nothing of Ray.

`torchrun --nproc-per-node 2 -m dtsweep.worker SWEEP.py workers=2 sync=ddp` runs one point without Ray and
prints its row as JSON: the control measurement of what the harness costs.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from dtsweep.errors import SweepError
from dtsweep.hardware.memory import oom_status, release_memory, total_bytes
from dtsweep.hardware.peaks import matmul_flops, peak_flops
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.measure.flops import count_flops, given_flops
from dtsweep.metrics.breakdown import Outcome
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Measure
from dtsweep.sweep.task import Task
from dtsweep.sync.passes import Job, batches_of_steps, loss_in_precision, make_optimizer
from dtsweep.worker.timing import time_trial

FEW_STEPS = 3
"""A window that ran out of time with fewer steps is a `timeout`."""


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """This rank's place in its world."""

    rank: int
    device: torch.device
    workload: Any
    """The sweep's workload; a trial replaces fields of it."""

    telemetry: Telemetry
    """Of this rank's device and host."""

    device_name: str
    """Model of the device."""


def attempt(
    context: RankContext,
    task: Task,
    *,
    servers: Sequence[Any] = (),
    on_warm: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Run one attempt to its end, whatever happens in it.

    Args:
        context: this rank.
        task: what to run; the same on all ranks.
        servers: shards of the parameter server, if the mode needs them.
        on_warm: told the slowest warm-up step in seconds, just before the window.
    """
    try:
        outcome = _measure(context, task, servers, on_warm)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own code may raise anything
        traceback.print_exc()
        # The name alone where the exception says nothing.
        said = [type(error).__name__, *str(error).strip().splitlines()[:1]]
        outcome = {"status": status_of(error), "reason": ": ".join(said)}
    sys.stdout.flush()
    sys.stderr.flush()
    return {**outcome, "memory_left_bytes": release_memory(context.device), "device_bytes": total_bytes(context.device)}


def status_of(error: BaseException) -> str:
    """Name what an exception on a rank means for the trial."""
    if full := oom_status(error):
        return full
    # A peer that is gone shows as an error of the exchange: the fault is not this rank's.
    gone = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    gone_server = any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)
    if gone_server or isinstance(error, distributed.DistError) or any(words in str(error) for words in gone):
        return "collateral"
    return "user_error"


def _measure(context: RankContext, task: Task, servers: Sequence[Any], on_warm: Callable[[float], None]) -> Outcome:
    """Build the trial and have it timed."""
    point = task.to_point(context.workload)
    # Refused before anything is measured.
    given_flops(point.workload)
    _set_precision(point.precision, context.device)
    job = Job(
        point=point,
        rank=context.rank,
        device=context.device,
        loss=loss_in_precision(point, context.device),
        ddp_options=getattr(point.workload, "ddp_options", {}),
        servers=servers,
    )
    known = _device_rates(context, task, point)
    mode = MODES[point.sync].load()(job)
    try:
        # A workload of its own: this one travels to the parameter servers, without what `batch` has cached.
        make = functools.partial(make_optimizer, point=task.to_point(context.workload))
        model = _build(job, task)
        mode.prepare(model, make)
        outcome = {**known, **time_trial(job, mode, task, telemetry=context.telemetry, on_warm=on_warm)}
        if context.rank == 0:
            flops = count_flops(point.workload, model=model, precision=point.precision, device=context.device)
            # As plain values: whoever reads them need not import torch.
            outcome["flops"] = flops and asdict(flops)
        return {**outcome, **_verdict(outcome, task.measure)}
    finally:
        mode.close()


def _device_rates(context: RankContext, task: Task, point: Point) -> Outcome:
    """What the device can do: given, known from a table, or on a CPU measured by a matrix product on all ranks."""
    matmul = matmul_flops(context.device, point.precision)
    on_cpu = context.device.type == "cpu"
    table = None if on_cpu else peak_flops(context.device_name, point.precision)
    known = {"given": task.peak_flops_per_s, "table": table}
    source = next((source for source, peak in known.items() if peak), "measured" if on_cpu else None)
    return {
        "matmul_flops_per_s": matmul,
        "peak_flops_per_s": known.get(source or "", matmul if on_cpu else None),
        "peak_source": source,
    }


def _build(job: Job, task: Task) -> nn.Module:
    """Make the model, and the data that a workload makes once, from the same seed on all ranks."""
    seed = int.from_bytes(hashlib.sha256(f"{task.seed}/{task.repeat}".encode()).digest()[:4], "big")
    _set_seed(seed)
    model = job.point.workload.build().to(job.device).train()
    _set_seed(seed)
    next(next(batches_of_steps(job)))
    # From here on ranks draw differently: equal dropout masks on all would be a smaller batch.
    _set_seed(seed + 1 + job.rank)
    return model  # type: ignore[no-any-return]  # the user's class says what it is


def _verdict(outcome: Outcome, measure: Measure) -> Outcome:
    steps = outcome["steps"]
    # A window ends a little after its decision: steps that ended too late don't count here.
    timed_steps = steps["part"] == "window"
    in_time = int((timed_steps & (steps["start_s"] + steps["step_s"] <= measure.max_seconds)).sum())
    if outcome["stop_reason"] == "max_seconds" and in_time < FEW_STEPS:
        return {"status": "timeout", "reason": f"{in_time} steps in max_seconds={measure.max_seconds:g}; raise it"}
    finite = np.isfinite(steps["loss"]) | ~np.isin(steps["part"], ("warmup", "window"))
    if not finite.all():
        step = int(np.argmin(finite))
        return {"status": "nan", "reason": f"the loss is not finite from step {step} on; lower learning_rate"}
    return {"status": "ok", "reason": None}


def _set_precision(precision: str, device: torch.device) -> None:
    """Set all flags that change how fast the same work is done, whatever the last trial's workload set."""
    if precision == "tf32" and device.type != "cuda":
        raise SweepError("precision 'tf32' needs a GPU; on a CPU it would be fp32 under another name")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = False


def _set_seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # user code draws from the global state
    torch.manual_seed(seed)
