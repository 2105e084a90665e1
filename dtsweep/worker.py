"""One rank: builds a trial, warms it up, times its window. Knows nothing of Ray.

`torchrun --nproc-per-node 2 -m dtsweep.worker SWEEP.py workers=2 sync=ddp` runs one point without Ray and
prints its row as JSON: the control measurement of what the harness costs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
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
from dtsweep.sweep import Measure
from dtsweep.sync import MODES, SyncMode
from dtsweep.sync.passes import Job, batches_of_steps, loss_in_precision, make_optimizer

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
        # The name alone where the exception says nothing.
        said = [type(error).__name__, *str(error).strip().splitlines()[:1]]
        outcome = {"status": status_of(error), "reason": ": ".join(said)}
    sys.stdout.flush()
    sys.stderr.flush()
    return {**outcome, "memory_left_bytes": clean(team.device), "device_bytes": total_bytes(team.device)}


def status_of(error: BaseException) -> str:
    """Name what an exception on a rank means for the trial."""
    text = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "oom_host"
    # Libraries that take memory for themselves (cuBLAS, cuDNN, NCCL) have words of their own for it.
    full = ("CUDA out of memory", "'out of memory'", "_STATUS_ALLOC_FAILED")
    if isinstance(error, torch.OutOfMemoryError) or any(words in text for words in full):
        return "oom_device"
    # A peer that is gone shows as an error of the exchange: the fault is not this rank's.
    gone = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting")
    gone_server = any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)
    if gone_server or isinstance(error, distributed.DistError) or any(words in text for words in gone):
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
        loss=loss_in_precision(point, team.device),
        ddp_options=getattr(point.workload, "ddp_options", {}),
        servers=servers,
    )
    mode = MODES[point.sync].load()(job)
    try:
        # A workload of its own: this one travels to the parameter servers, without what `batch` has cached.
        make = functools.partial(make_optimizer, point=order.to_point(team.workload))
        mode.prepare(_build(job, order), make)
        clock, steps = clock_for(team.device), batches_of_steps(job)
        warmup = math.ceil(order.measure.warmup_steps / point.period) * point.period
        warm_losses = _run(mode, clock, steps, range(warmup))
        clock.stop()
        warm_began, warm = clock.began, clock.times()
        slowest_s, period_s = _agree(job, warm)
        on_warm(slowest_s)

        window = _window(job, order, period_s)
        mode.counters()
        with _collector(keep=order.measure.gc):
            _barrier(team.device)
            losses = _run(mode, clock, steps, window)
            mode.drain()
            window_s = clock.stop()
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
    next(next(batches_of_steps(job)))
    # From here on ranks draw differently: equal dropout masks on all would be a smaller batch.
    _set_seed(seed + 1 + job.rank)
    return model  # type: ignore[no-any-return]  # the user's class says what it is


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
    steps = outcome["steps"]
    # A window ends a little after its decision: steps that ended too late don't count here.
    in_time = int((~steps["warmup"] & (steps["start_s"] + steps["step_s"] <= measure.max_seconds)).sum())
    if outcome["stop_reason"] == "max_seconds" and in_time < FEW_STEPS:
        return {"status": "timeout", "reason": f"{in_time} steps in max_seconds={measure.max_seconds:g}; raise it"}
    if not np.isfinite(outcome["steps"]["loss"]).all():
        step = int(np.argmin(np.isfinite(outcome["steps"]["loss"])))
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


@contextlib.contextmanager
def _collector(*, keep: bool) -> Iterator[None]:
    """Collect garbage now, and then not again inside the window, unless it is to be kept on."""
    was_on = gc.isenabled()
    gc.collect()
    if not keep:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _barrier(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        distributed.barrier(device_ids=[device.index])
    else:
        distributed.barrier()


if __name__ == "__main__":
    from dtsweep.control import main

    sys.exit(main(sys.argv[1:]))
