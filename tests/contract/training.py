"""Training of a mode in all cases of the contract, on each rank of a world of gloo processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from dtsweep.measure.clock import Times
from dtsweep.sweep.modes import mode_of
from dtsweep.sync.compiled import compile_model
from dtsweep.sync.groups import messages, position
from dtsweep.sync.mode import Loss, SyncMode
from tests.contract.loop import Loop
from tests.contract.regression import PERIOD, STEPS, Weights, job_of, model_of, point_of, weights

RUNS: Mapping[str, Sequence[int]] = {
    "plain": (STEPS,),
    "accumulation": (STEPS,),
    # One step after the first of two exchanges.
    "between": (PERIOD + 1,),
    "restarted": (PERIOD, PERIOD),
    "no_exchange": (STEPS,),
    "compiled": (STEPS,),
}
"""Steps of each run of a case; what is under way ends after each."""

CASES = tuple(RUNS)

COMPILED = ("ddp", "fsdp", "local_sgd")
"""Modes that compile: one whose wrapper divides graphs, one by blocks, one with the plain model."""

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
    needs = {
        "no_exchange": bool(info.can_leave_out),
        "restarted": info.can_restart,
        "compiled": mode in COMPILED,
    }
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


def train(mode: str, case: str, *, rank: int, workers: int) -> Outcome:
    """Train on one rank; each builds another model, which the mode must make equal."""
    point = point_of(mode, workers=workers, case=case)
    without = point.mode.can_leave_out if case == "no_exchange" else ()
    model = model_of(rank)
    if case == "compiled":
        compile_model(model, point.workload, by_blocks=point.mode.shards)
    loop = Loop(job_of(point, rank), model)
    sync, losses, updates, counts = loop.mode, list[Loss](), list[int](), [begun()]
    looks: list[None] = []
    sync.before_update = lambda: looks.append(None)
    with _updates_counted() as calls:
        for run in RUNS[case]:
            sync.begin_period(0)
            for _ in range(run):
                losses += loop.run(1, without=without)
                counts.append(begun())
            sync.drain()
            updates.append(len(calls))
        loop.clock.stop()
    seen = len(looks)
    counters, trained, back = dict(sync.counters()), weights(loop.model), [begun()]
    for _ in range(BACK if case == "no_exchange" else 0):
        loop.run(1)
        back.append(begun())
    if point.mode.can_restart:
        sync.drain()
    alone = None
    if point.mode.can_exchange_alone:
        alone = exchange_alone(sync, loop.model)
    sync.close()
    return Outcome(
        weights=trained,
        losses=losses,
        times=loop.clock.times(),
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


def train_all(rank: int, workers: int, modes: Sequence[str]) -> OfRank:
    """Train modes in all their cases on one rank."""
    return {
        (mode, case): train(mode, case, rank=rank, workers=workers)
        for mode in modes
        for case in cases_of(mode)
    }
