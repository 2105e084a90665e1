"""Training of a variant on real processes, for `efficiency`: the held-out loss along each run.

Ranks are processes with gloo; those of modes that need Ray are its tasks, with real servers and so
with the staleness that this machine makes.
"""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import ray
import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import start_processes

from benchmarks.efficiency_problems import CPU, MICRO_BATCH, PROBLEMS, SAMPLES, WORKERS
from dtsweep.measure.clock import CpuClock
from dtsweep.session.shards import start_shard
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import forget_groups
from dtsweep.sync.mode import Job, SyncMode, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from tests.contract.regression import Weights, weights

CHECKPOINT_SAMPLES = 128
"""Samples that workers draw from one held-out loss to the next: 8 steps of all workers."""

LOOK = 4
"""Checkpoints from one look at the last losses to the next."""

LONGEST = timedelta(minutes=5)
"""A mode whose ranks wait for each other in vain fails after it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    seed: int
    """Seed of the weights and the samples: runs with one seed have the same in all variants."""

    learning_rate: float
    samples: int
    """Samples to train on, of all workers."""

    target: float | None = None
    """Loss that ends the run once all checkpoints since the last look are below; None for none.

    No run ends before `SAMPLES`.
    """


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Outcome of a run."""

    samples: Sequence[float]
    """(checkpoints,) samples that were trained on, of all workers, from 0.

    As in `samples_per_s`, samples whose gradients were dropped do not count.
    """

    losses: Sequence[float]
    """(checkpoints,) held-out loss of the mean of the workers' parameters."""

    staleness: float | None = None
    """Mean staleness of an update, in updates; None in modes that do not count it."""


def trained_share(point: Point) -> float:
    """Share of the samples that are trained on, if each update drops as many gradients as it may.

    >>> trained_share(Point(workers=4, sync="parameter_server", staleness=0, drop_slowest=1))
    0.75
    """
    return 1 - point.drop_slowest / point.workers


def point_of(problem: str, fields: Mapping[str, Any], run: Run | None = None) -> Point:
    """Point of a variant on a problem; without a run with any seed and learning rate."""
    if run is None:
        run = Run(seed=0, learning_rate=PROBLEMS[problem].learning_rates[0], samples=SAMPLES)
    return Point(
        workers=WORKERS,
        micro_batch=MICRO_BATCH,
        placement="strict_pack",
        optimizer=PROBLEMS[problem].optimizer,
        learning_rate=run.learning_rate,
        clip_norm=PROBLEMS[problem].clip_norm,
        workload=PROBLEMS[problem].task(seed=run.seed),
        **fields,
    )


def curves_of(problem: str, fields: Mapping[str, Any], runs: Sequence[Run]) -> list[Curve]:
    """Train on `WORKERS` processes, one run after another; modes that need Ray use the one here.

    Args:
        problem: one of `PROBLEMS`.
        fields: of the points.
        runs: to train.

    Raises:
        ProcessRaisedException: a rank failed; of modes that need Ray `RayTaskError`.
    """
    with TemporaryDirectory() as name:
        arguments = (problem, dict(fields), list(runs), Path(name))
        if point_of(problem, fields).mode.needs_ray:
            _train_in_ray(*arguments)
        else:
            multiprocessing.set_forkserver_preload([__name__])
            start_processes(
                train_on_rank, args=arguments, nprocs=WORKERS, start_method="forkserver"
            )
        stored = json.loads((Path(name) / "curves.json").read_text("utf-8"))
    return [Curve(**values) for values in stored]


def _train_in_ray(
    problem: str, fields: Mapping[str, Any], runs: Sequence[Run], folder: Path
) -> None:
    node = ray.get_runtime_context().get_node_id()
    count = point_of(problem, fields).servers
    servers = [start_shard(node, node="this node").actor for _ in range(count)]
    train = ray.remote(train_on_rank).options(num_cpus=0, max_retries=0)
    ranks = range(WORKERS)
    try:
        ray.get([train.remote(rank, problem, fields, runs, folder, servers) for rank in ranks])
    finally:
        for server in servers:
            ray.kill(server)


def train_on_rank(
    rank: int,
    problem: str,
    fields: Mapping[str, Any],
    runs: Sequence[Run],
    folder: Path,
    servers: Sequence[Any] = (),
) -> None:
    """Train all runs on one rank; rank 0 leaves the curves in the folder.

    Args:
        rank: of this process.
        problem: one of `PROBLEMS`.
        fields: of the points.
        runs: to train.
        folder: where ranks meet.
        servers: handles of the servers, for modes that have some.
    """
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS, timeout=LONGEST
    )
    curves = []
    for run in runs:
        point = point_of(problem, fields, run)
        loss = loss_in_precision(point, CPU)
        job = Job(point=point, rank=rank, device=CPU, loss=loss, servers=servers, seed=run.seed)
        curves.append(train(job, run))
    if rank == 0:
        text = json.dumps([asdict(curve) for curve in curves])
        (folder / "curves.json").write_text(text, "utf-8")
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


def train(job: Job, run: Run) -> Curve:
    """Train as the common loop does; called on all ranks, of which rank 0 has the losses."""
    torch.manual_seed(run.seed)
    point = job.point
    model = point.workload.build()
    mode, clock = load_mode(point.sync)(job), CpuClock()
    steps = batches_of_steps(job, lambda: mode.slot)
    mode.prepare(model, functools.partial(make_optimizer, point=point))
    trained = mode.trained or model
    clock.start()
    mode.begin_period(0)
    # Kept until the end: an exchange of them would hold workers up that run apart. With
    # `drop_slowest` there is not even a look: updates are made of fewer gradients then, until the
    # last worker has come.
    kept = [weights(trained)]
    per_checkpoint = CHECKPOINT_SAMPLES * trained_share(point)
    for place in range(1, math.ceil(run.samples / per_checkpoint) + 1):
        for _ in range(CHECKPOINT_SAMPLES // point.global_batch):
            mode.step(next(steps), clock)
            clock.end_step()
        kept.append(weights(trained))
        looks = place % LOOK == 0 and place * per_checkpoint >= SAMPLES and not point.drop_slowest
        if looks and _is_below(job, kept, run.target):
            break
    mode.drain()
    late, dropped_share = _counts(mode, point, drawn=CHECKPOINT_SAMPLES * (len(kept) - 1))
    mode.close()
    return Curve(
        samples=[place * CHECKPOINT_SAMPLES * (1 - dropped_share) for place in range(len(kept))],
        losses=_held_out_losses(job, kept),
        staleness=late,
    )


def _counts(mode: SyncMode, point: Point, *, drawn: int) -> tuple[float | None, float]:
    """Mean staleness, None where none is counted, and share of the drawn samples that is dropped.

    Called on all ranks.
    """
    counted: list[Any] = [None] * point.workers
    distributed.all_gather_object(counted, dict(mode.counters()))
    dropped = sum(sum(one.get("dropped", ())) for one in counted) * point.samples_per_worker_step
    late = [count for one in counted for count in one.get("staleness", ())]
    return float(np.mean(late)) if late else None, dropped / drawn


def _is_below(job: Job, kept: Sequence[Weights], target: float | None) -> bool:
    """True if the loss was below the target since the last look; the same on all ranks."""
    if target is None:
        return False
    losses = _held_out_losses(job, kept[-LOOK:])
    answer = torch.tensor(job.rank == 0 and max(losses) < target)
    distributed.broadcast(answer, src=0)
    return bool(answer)


def _held_out_losses(job: Job, kept: Sequence[Weights]) -> list[float]:
    """Held-out losses of the means over workers of all parameters; empty but on rank 0."""
    means = torch.from_numpy(np.stack(kept)) / job.point.workers
    distributed.all_reduce(means)
    if job.rank != 0:
        return []
    model = job.point.workload.build()
    losses = []
    for row in means:
        nn.utils.vector_to_parameters(row, model.parameters())
        losses.append(job.point.workload.held_out_loss(model))
    return losses
