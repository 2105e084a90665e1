"""The timed part of a trial on one rank: warm-up, window, and the steps after it that tell what the exchange costs."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.distributed import distributed_c10d

from dtsweep.measure.clock import Times, clock_for
from dtsweep.measure.exchange import alone, turns
from dtsweep.measure.memory import peak_bytes, retries
from dtsweep.measure.profile import profiled
from dtsweep.measure.stopping import Rule
from dtsweep.measure.telemetry import Telemetry
from dtsweep.measure.window import Peers, Window
from dtsweep.order import Order
from dtsweep.sync import MODES, SyncMode
from dtsweep.sync.passes import Job, batches_of_steps

WINDOWS = 3
"""Windows of a trial at most: one in which something was compiled is measured again."""

MISMATCH, SLACK_S = 0.005, 0.002
"""By how much steps and window may differ, as a share and for the last look; beyond that a timer is wrong."""

HOST_BOUND = 0.5
"""Share of steps in which the device ran out of work, from which on the host is what is measured."""

PROFILED_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Part:
    """Steps that were run in one go."""

    name: str
    """`warmup`, `window`, `exchange` or `no_exchange`."""

    block: int
    """Number of a block after the window, else -1."""

    began: float
    times: Times
    losses: list[torch.Tensor]


class Loop:
    """Runs a mode's steps and keeps their times, part by part."""

    def __init__(self, job: Job, mode: SyncMode) -> None:
        """Begin with the first samples."""
        self.job, self.mode = job, mode
        self.clock, self._batches = clock_for(job.device), batches_of_steps(job)
        self.parts: list[Part] = []
        self.drained_s = 0.0

    def run(self, name: str, window: Iterable[int], *, block: int = -1, drain: bool = False) -> float:
        """The timed loop: as many steps as the window has; nothing else stands between start and end."""
        losses = []
        self.clock.start()
        for _ in window:
            losses.append(self.step(exchange=name != "no_exchange"))
            self.clock.end_step()
        began_drain = time.perf_counter()
        if drain:
            self.mode.drain()
        self.drained_s = time.perf_counter() - began_drain
        seconds = self.clock.stop()
        times = self.clock.times()
        self.parts.append(Part(name=name, block=block, began=self.clock.began, times=times, losses=losses))
        return seconds

    def step(self, *, exchange: bool = True) -> torch.Tensor:
        """Do one step."""
        return self.mode.step(next(self._batches), self.clock, exchange=exchange)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of `steps`, part after part; starts count from the window's."""
        window = next(part for part in reversed(self.parts) if part.name == "window")
        names = {name for part in self.parts for name in part.times}
        columns = {name: _joined(part.times.get(name, _unknown(part)) for part in self.parts) for name in names}
        columns["start_s"] = _joined(part.times["start_s"] + part.began - window.began for part in self.parts)
        columns["loss"] = _joined(
            torch.stack(part.losses).double().cpu().numpy() if part.name in ("warmup", "window") else _unknown(part)
            for part in self.parts
            if len(part.losses)
        )
        counts = [len(part.losses) for part in self.parts]
        columns["part"] = np.repeat([part.name for part in self.parts], counts)
        columns["block"] = np.repeat([part.block for part in self.parts], counts)
        columns["step"] = np.arange(len(columns["part"]))
        return columns

    def demote(self) -> None:
        """Count the last window as warm-up."""
        self.parts[-1] = replace(self.parts[-1], name="warmup")


def timed(
    job: Job, mode: SyncMode, order: Order, *, telemetry: Telemetry, on_warm: Callable[[float], None]
) -> dict[str, Any]:
    """Warm up, measure a window, and then what the exchange costs.

    Args:
        job: the trial as this rank sees it.
        mode: prepared with the model.
        order: the trial.
        telemetry: of this rank's device.
        on_warm: told the slowest warm-up step in seconds, just before the window.
    """
    loop = Loop(job, mode)
    outcome: dict[str, Any] = {}
    again = WINDOWS
    limits, had_compiled, spent_s = order.measure, False, 0.0
    while again:
        outcome, compiled_in = _window(loop, replace(order, measure=limits), telemetry, on_warm=on_warm)
        compiled, spent_s = _slowest(job, compiled_in, outcome["window_s"])
        limits = replace(limits, max_seconds=limits.max_seconds - spent_s) if spent_s < limits.max_seconds else limits
        had_compiled |= compiled > 0
        # Time is short, or a parameter server has been left: then the window stays, with its flag.
        again = 0 if not compiled or spent_s >= limits.max_seconds or job.servers else again - 1
        if again:
            loop.demote()
    outcome["flags"] += ["recompiled"] * had_compiled
    if MODES[job.point.sync].can_skip_exchange and job.point.workers > 1:
        outcome |= _exchange(loop, outcome["window_steps"], spent_s)
    if order.profile and not job.servers:
        outcome |= _profile(loop, order.profile)
    return {**outcome, "steps": loop.columns()}


def _window(
    loop: Loop, order: Order, telemetry: Telemetry, *, on_warm: Callable[[float], None]
) -> tuple[dict[str, Any], int]:
    """Warm up and measure one window; also how much was compiled inside it."""
    job, period = loop.job, loop.job.point.period
    loop.run("warmup", range(math.ceil(order.measure.warmup_steps / period) * period))
    slowest_s, period_s = _agree(job, loop.parts[-1].times)
    on_warm(slowest_s)
    window = laid_out(loop, order, period_s)
    loop.mode.counters()
    compiled, retried = _compiled(), retries(job.device)
    telemetry.start()
    try:
        with _collector(keep=order.measure.gc):
            _barrier(job.device)
            window_s = loop.run("window", window, drain=True)
    finally:
        seen = telemetry.stop()
    _barrier(job.device)
    window.forget()
    outcome = {
        **seen,
        **loop.mode.counters(),
        "window_s": window_s,
        "hard_skip": sum(len(part.losses) for part in loop.parts[:-1]),
        "window_steps": window.steps,
        "stop_reason": window.reason,
        "memory_peak_bytes": peak_bytes(job.device),
        "flags": [*seen.pop("telemetry_flags"), *_flags(loop, window_s)],
    }
    outcome["flags"] += ["oom_retry"] * (retries(job.device) > retried)
    return outcome, _compiled() - compiled


def laid_out(loop: Loop, order: Order, period_s: float) -> Window:
    """The loop's next window: its rule, and what this rank shares with the others."""
    job, point = loop.job, loop.job.point
    rule = Rule(
        order.measure,
        period=point.period,
        samples_per_step=point.workers * point.micro_batch * point.accumulation,
        rivals=order.rivals,
    )
    # Keys of this window alone: a trial may have several.
    key = f"{order.attempt_id}/{len(loop.parts)}"
    store = distributed_c10d.PrefixStore(key, distributed_c10d._get_default_store()) if job.point.workers > 1 else None
    return Window(
        order.measure,
        rule,
        loop.clock.so_far,
        peers=Peers(rank=job.rank, store=store, together=not point.is_asynchronous),
        period_s=period_s,
    )


def _exchange(loop: Loop, window_steps: int, window_s: float) -> dict[str, Any]:
    """Steps with and without the exchange in turns, then the exchange alone; the model is lost by that."""
    job = loop.job
    blocks = list(turns(window_steps, window_s=window_s, period=job.point.period))
    for block, (exchanges, steps) in enumerate(blocks):
        _barrier(job.device)
        loop.run("exchange" if exchanges else "no_exchange", range(steps), block=block)
    if not blocks:
        return {}
    _barrier(job.device)
    return {"exchange_isolated_s": alone(loop.mode.exchange_alone, job.device)}


def _profile(loop: Loop, profiler: str) -> dict[str, Any]:
    """Record some more steps; nsys writes its own report."""
    device, period = loop.job.device, loop.job.point.period
    steps = math.ceil(PROFILED_STEPS / period) * period

    def step() -> None:
        loop.step()
        loop.clock.end_step()

    if profiler == "torch":
        return {"profile": asdict(profiled(step, steps=steps, device=device))}
    _barrier(device)
    with torch.cuda.profiler.profile() if device.type == "cuda" else contextlib.nullcontext():
        for _ in range(steps):
            step()
        _barrier(device)
    return {}


def _flags(loop: Loop, window_s: float) -> list[str]:
    between = abs(window_s - loop.drained_s - float(loop.parts[-1].times["step_s"].sum()))
    waited = loop.clock.waited_for_host()
    return ["timer_mismatch"] * (between > MISMATCH * window_s + SLACK_S) + ["host_bound"] * (
        waited is not None and waited > HOST_BOUND
    )


def _agree(job: Job, warm: Times) -> tuple[float, float]:
    """The slowest warm-up step, and what a sync period takes by its last ones: the same on all ranks."""
    seconds = warm["step_s"]
    slowest, period_s = _slowest(job, seconds.max(initial=0.0), seconds[-job.point.period :].sum())
    return slowest, period_s


def _slowest(job: Job, *values: float) -> list[float]:
    """The largest of each value over all ranks."""
    shared = torch.tensor(values, dtype=torch.float64).to(job.device)
    distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
    return [float(value) for value in shared]


def _compiled() -> int:
    """Graphs that torch has compiled in this process so far."""
    if "torch._dynamo" not in sys.modules:
        return 0
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _joined(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(arrays))


def _unknown(part: Part) -> NDArray[np.float64]:
    return np.full(len(part.losses), np.nan)


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
