"""Training of a mode in all cases of the contract, on each rank of a world of gloo processes."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed
from torch.multiprocessing.spawn import start_processes
from torch.optim.optimizer import register_optimizer_step_post_hook

from dtsweep.measure.clock import CpuClock, Times
from dtsweep.sweep.modes import mode_of
from dtsweep.sync.groups import forget_groups, messages, position
from dtsweep.sync.mode import Loss, SyncMode, load_mode
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from tests.contract import wrong
from tests.contract.regression import (
    PERIOD,
    STEPS,
    Weights,
    job_of,
    model_of,
    point_of,
    weights,
)

RUNS: Mapping[str, Sequence[int]] = {
    "plain": (STEPS,),
    "accumulation": (STEPS,),
    # One step after the first of two exchanges.
    "between": (PERIOD + 1,),
    "restarted": (PERIOD, PERIOD),
    "no_exchange": (STEPS,),
}
"""Steps of each run of a case; what is under way ends after each."""

CASES = tuple(RUNS)

LONGEST = timedelta(seconds=120)
"""A mode whose ranks wait for each other in vain fails instead of hanging."""

BACK = 3
"""Steps with the exchange after those without it; DDP rebuilds its buckets after the first."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """Outcome of exchanges by themselves, after the steps of a case."""

    shared_by: Sequence[int]
    """Steps that share one exchange, as each of two says."""

    exchanges: int
    """Collectives and messages that the two began."""

    weights: Weights


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a case on one rank."""

    weights: Weights
    losses: Sequence[Loss]
    times: Times
    counters: Mapping[str, Any]
    exchanges: Sequence[int]
    """Collectives and messages that each step began."""

    exchanges_back: Sequence[int]
    """Collectives and messages of steps with the exchange after those without it."""

    updates: Sequence[int]
    """Calls of optimizers until the end of each run."""

    looks: int
    """Calls of `before_update` until the end of the last run."""

    alone: Alone | None
    """None of a mode without `can_exchange_alone`."""

    position: int
    """Collectives that this rank has begun in all groups, when the case is over."""


OfRank = Mapping[tuple[str, str], Outcome]
"""Outcomes on one rank by mode and case."""


def cases_of(mode: str) -> list[str]:
    """The cases that a mode can train."""
    info = mode_of(mode)
    needs = {"no_exchange": bool(info.can_leave_out), "restarted": info.can_restart}
    return [case for case in CASES if needs.get(case, True)]


def begun() -> int:
    """Number of collective operations and messages this process has begun, in all groups."""
    return position() + messages()


@contextmanager
def _updates_counted() -> Iterator[list[None]]:
    """A list that grows with each call of an optimizer of torch."""
    calls: list[None] = []
    hook = register_optimizer_step_post_hook(lambda *_: calls.append(None))
    try:
        yield calls
    finally:
        hook.remove()


def train(mode: str, case: str, *, rank: int, workers: int, fields: Mapping[str, Any]) -> Outcome:
    """Train on one rank as the common loop does.

    Each rank builds another model, which the mode must make equal.
    """
    point = point_of(mode, workers=workers, case=case, fields=fields)
    job = job_of(point, rank)
    clock, model = CpuClock(), model_of(rank)
    sync = load_mode(mode)(job)
    steps = batches_of_steps(job, lambda: sync.slot)
    sync.prepare(model, functools.partial(make_optimizer, point=point))
    without = point.mode.can_leave_out if case == "no_exchange" else ()
    losses, updates, counts = [], [], [begun()]
    looks: list[None] = []
    sync.before_update = lambda: looks.append(None)
    with _updates_counted() as calls:
        clock.start()
        for run in RUNS[case]:
            sync.begin_period(0)
            for _ in range(run):
                losses.append(sync.step(next(steps), clock, without=without))
                clock.end_step()
                counts.append(begun())
            sync.drain()
            updates.append(len(calls))
        clock.stop()
    seen = len(looks)
    counters, trained, back = dict(sync.counters()), weights(model), [begun()]
    for _ in range(BACK if case == "no_exchange" else 0):
        sync.step(next(steps), clock)
        back.append(begun())
    if point.mode.can_restart:
        sync.drain()
    alone = None
    if point.mode.can_exchange_alone:
        alone = exchange_alone(sync, model)
    sync.close()
    return Outcome(
        weights=trained,
        losses=losses,
        times=clock.times(),
        counters=counters,
        exchanges=np.diff(counts).tolist(),
        exchanges_back=np.diff(back).tolist(),
        updates=updates,
        looks=seen,
        alone=alone,
        position=position(),
    )


def exchange_alone(sync: SyncMode, model: torch.nn.Module) -> Alone:
    """Exchange twice without a step."""
    # In the first one ranks may agree on more.
    sync.exchange_alone()
    before = begun()
    shared_by = [sync.exchange_alone() for _ in range(2)]
    return Alone(shared_by=shared_by, exchanges=begun() - before, weights=weights(model))


def train_all(
    rank: int, workers: int, folder: Path, modes: Sequence[str], fields: Mapping[str, Any]
) -> None:
    """Train modes in all their cases on one rank, and leave the outcomes in a folder.

    Args:
        rank: of this process.
        workers: processes of the world.
        folder: where ranks meet.
        modes: to train.
        fields: more fields of all points.
    """
    wrong.declare(pytest.MonkeyPatch())
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=workers, timeout=LONGEST
    )
    outcomes = {
        (mode, case): train(mode, case, rank=rank, workers=workers, fields=fields)
        for mode in modes
        for case in cases_of(mode)
    }
    torch.save(outcomes, folder / f"{rank}.pt")
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


def outcomes_in(folder: Path, workers: int) -> list[OfRank]:
    """Outcomes of all ranks, which `train_all` has left."""
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(workers)]


def train_in_processes(
    mode: str, workers: int, folder: Path, fields: Mapping[str, Any]
) -> list[OfRank]:
    """Train a mode on ranks that are forked from a server, which imports torch once.

    Raises:
        ProcessRaisedException: a rank failed; it has the traceback.
        ProcessExitedException: a rank died.
    """
    multiprocessing.set_forkserver_preload([__name__])
    start_processes(
        train_all,
        args=(workers, folder, [mode], fields),
        nprocs=workers,
        start_method="forkserver",
    )
    return outcomes_in(folder, workers)
