"""One rank: builds a trial, warms it up, times its window. Knows nothing of Ray.

`torchrun --nproc-per-node 2 -m dtsweep.worker SWEEP.py workers=2 sync=ddp` runs one point without Ray and
prints its row as JSON: the control measurement of what the harness costs.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import itertools
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn
from torch.distributed import distributed_c10d

from dtsweep.errors import SweepError
from dtsweep.measure.clock import Clock, Times, clock_for
from dtsweep.measure.memory import clean, peak_bytes, total_bytes
from dtsweep.measure.window import Window
from dtsweep.order import Order
from dtsweep.point import Point
from dtsweep.sweep import Measure
from dtsweep.sync import MODES, SyncMode
from dtsweep.sync.passes import Job, make_optimizer

FEW_STEPS = 3
"""A window that ran out of time with fewer steps is a `timeout`."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """This rank's place in its world."""

    rank: int
    device: torch.device
    workload: Any
    """The sweep's workload; a trial replaces fields of it."""


Outcome = dict[str, Any]
"""What a rank sends: `status`, `reason`, and if it measured `steps` (arrays by column) and single figures."""


def attempt(
    team: Team,
    order: Order,
    *,
    servers: Sequence[Any] = (),
    on_warm: Callable[[float], None] = lambda _: None,
) -> Outcome:
    """Run one attempt to its end, whatever happens in it.

    Args:
        team: this rank.
        order: what to run; the same on all ranks.
        servers: shards of the parameter server, if the mode needs them.
        on_warm: told the slowest warm-up step in seconds, just before the window.
    """
    try:
        outcome = _measure(team, order, servers, on_warm)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own code may raise anything
        traceback.print_exc()
        last = str(error).strip().splitlines()
        outcome = {"status": status_of(error), "reason": f"{type(error).__name__}: {last[0] if last else ''}"}
    sys.stdout.flush()
    sys.stderr.flush()
    return {**outcome, "memory_left_bytes": clean(team.device), "device_bytes": total_bytes(team.device)}


def status_of(error: BaseException) -> str:
    """Name what an exception on a rank means for the trial."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "oom_device"
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "oom_host"
    # A peer that is gone shows as an error of the exchange: the fault is not this rank's.
    gone = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    if isinstance(error, distributed.DistError) or any(words in text for words in gone):
        return "collateral"
    return "user_error"


def _measure(team: Team, order: Order, servers: Sequence[Any], on_warm: Callable[[float], None]) -> Outcome:
    """Build, warm up, barrier, time, drain."""
    point = order.to_point(team.workload)
    _set_precision(point.precision, team.device)
    job = Job(
        point=point,
        rank=team.rank,
        device=team.device,
        loss=_loss(point, team.device),
        ddp_options=getattr(point.workload, "ddp_options", {}),
        servers=servers,
    )
    mode = MODES[point.sync].load()(job)
    collecting = gc.isenabled()
    try:
        mode.prepare(_build(job, order), functools.partial(make_optimizer, point=point))
        clock, steps = clock_for(team.device), _steps(job)
        warmup = math.ceil(order.measure.warmup_steps / point.period) * point.period
        warm_losses = _run(mode, clock, steps, range(warmup))
        clock.stop()
        warm_began, warm = clock.began, clock.times()
        slowest_s, period_s = _agree(job, warm)
        on_warm(slowest_s)

        window = _window(job, order, period_s)
        gc.collect()
        if not order.measure.gc:
            gc.disable()
        mode.counters()
        _barrier(team.device)
        losses = _run(mode, clock, steps, window)
        mode.drain()
        window_s = clock.stop()
        if collecting:
            gc.enable()
        _barrier(team.device)
        window.forget()
        outcome: Outcome = {
            "window_s": window_s,
            "stop_reason": window.reason,
            "warmup_steps": warmup,
            "memory_peak_bytes": peak_bytes(team.device),
            "steps": _columns(warm, clock.times(), offset=warm_began - clock.began, losses=[*warm_losses, *losses]),
            **mode.counters(),
        }
        return {**outcome, **_verdict(outcome, order.measure)}
    finally:
        if collecting:
            gc.enable()
        mode.close()


def _run(mode: SyncMode, clock: Clock, steps: Iterator[Iterator[Any]], window: Iterable[int]) -> list[torch.Tensor]:
    """The timed loop: as many steps as the window has; nothing else stands between start and end."""
    losses = []
    clock.start()
    for _ in window:
        losses.append(mode.step(next(steps), clock))
        clock.end_step()
    return losses


def _build(job: Job, order: Order) -> nn.Module:
    """Make the model, and the data that a workload makes once, from the same seed on all ranks."""
    seed = int.from_bytes(hashlib.sha256(f"{order.seed}/{order.repeat}".encode()).digest()[:4], "big")
    _set_seed(seed)
    model = job.point.workload.build().to(job.device).train()
    _set_seed(seed)
    for _ in next(_steps(job)):
        break
    # From here on ranks draw differently: equal dropout masks on all would be a smaller batch.
    _set_seed(seed + 1 + job.rank)
    return model  # type: ignore[no-any-return]  # the user's class says what it is


def _steps(job: Job) -> Iterator[Iterator[Any]]:
    """Yield this rank's batches, step after step: sample numbers are global, each is read once."""
    point = job.point
    for step in itertools.count():
        first = [(step * point.accumulation + index) * point.workers + job.rank for index in range(point.accumulation)]
        yield (
            point.workload.batch(range(share * point.micro_batch, (share + 1) * point.micro_batch), job.device)
            for share in first
        )


def _window(job: Job, order: Order, period_s: float) -> Window:
    alone = job.point.workers == 1 or job.point.is_asynchronous
    store = None if alone else distributed_c10d.PrefixStore(order.attempt_id, distributed_c10d._get_default_store())
    return Window(order.measure, rank=job.rank, store=store, period_s=period_s, period=job.point.period)


def _agree(job: Job, warm: Times) -> tuple[float, float]:
    """The slowest warm-up step, and what a sync period takes by its last ones: the same on all ranks."""
    seconds = warm["step_s"]
    slowest = seconds.max(initial=0.0)
    both = torch.tensor([slowest, seconds[-job.point.period :].sum()], dtype=torch.float64).to(job.device)
    distributed.all_reduce(both, op=distributed.ReduceOp.MAX)
    return float(both[0]), float(both[1])


def _columns(warm: Times, timed: Times, *, offset: float, losses: list[torch.Tensor]) -> dict[str, NDArray[Any]]:
    """Put warm-up and window into the columns of `steps`; the warm-up's starts are negative."""
    count, timed_count = len(warm["step_s"]), len(timed["step_s"])
    columns: dict[str, NDArray[Any]] = {
        name: np.concatenate([warm.get(name, np.full(count, np.nan)), values]) for name, values in timed.items()
    }
    columns["start_s"][:count] += offset
    columns["step"] = np.arange(count + timed_count)
    columns["warmup"] = columns["step"] < count
    columns["loss"] = torch.stack(losses).double().cpu().numpy()
    return columns


def _verdict(outcome: Outcome, measure: Measure) -> Outcome:
    timed = int((~outcome["steps"]["warmup"]).sum())
    if outcome["stop_reason"] == "max_seconds" and timed < FEW_STEPS:
        return {"status": "timeout", "reason": f"{timed} steps in max_seconds={measure.max_seconds:g}; raise it"}
    if not np.isfinite(outcome["steps"]["loss"]).all():
        step = int(np.argmin(np.isfinite(outcome["steps"]["loss"])))
        return {"status": "nan", "reason": f"the loss is not finite from step {step} on; lower learning_rate"}
    return {"status": "ok", "reason": None}


def _loss(point: Point, device: torch.device) -> Callable[[nn.Module, Any], torch.Tensor]:
    plain: Callable[[nn.Module, Any], torch.Tensor] = point.workload.loss
    if point.precision != "bf16":
        return plain

    def under_autocast(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return plain(model, batch)

    return under_autocast


def _set_precision(precision: str, device: torch.device) -> None:
    if precision == "tf32" and device.type != "cuda":
        raise SweepError("precision 'tf32' needs a GPU; on a CPU it would be fp32 under another name")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _set_seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # user code draws from the global state
    torch.manual_seed(seed)


def _barrier(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        distributed.barrier(device_ids=[device.index])
    else:
        distributed.barrier()


if __name__ == "__main__":
    from dtsweep.control import main

    sys.exit(main(sys.argv[1:]))
