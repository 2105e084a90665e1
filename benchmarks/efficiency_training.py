"""Training of a variant on real processes, for `efficiency`: the held-out loss along each run.

Ranks are processes with gloo; those of modes that need Ray are its tasks, with real servers and so
with the staleness that this machine makes.
"""

from __future__ import annotations

import functools
import json
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

from benchmarks.efficiency_problems import CPU, MICRO_BATCH, PROBLEMS, STEPS, WORKERS
from dtsweep.contract.regression import Weights, weights
from dtsweep.measure.clock import CpuClock
from dtsweep.session.shards import start_shard
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import forget_groups
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer

CHECKPOINT_STEPS = 8
"""Steps from one held-out loss to the next."""

LOOK_STEPS = 32
"""Steps from one look at the last losses to the next."""

LONGEST = timedelta(minutes=5)
"""A mode whose ranks wait for each other in vain fails after it."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    seed: int
    """Seed of the weights and the samples: runs with one seed have the same in all variants."""

    learning_rate: float
    steps: int
    target: float | None = None
    """Loss that ends the run once all checkpoints since the last look are below; None for none."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Outcome of a run."""

    samples: Sequence[int]
    """(checkpoints,) samples that were trained on, of all workers, from 0."""

    losses: Sequence[float]
    """(checkpoints,) held-out loss of the mean of the workers' parameters."""

    staleness: float | None = None
    """Mean staleness of an update, in updates; None in modes that do not count it."""


def point_of(problem: str, fields: Mapping[str, Any], run: Run | None = None) -> Point:
    """Point of a variant on a problem; without a run with any seed and learning rate."""
    if run is None:
        run = Run(seed=0, learning_rate=PROBLEMS[problem].learning_rates[0], steps=STEPS)
    return Point(
        workers=WORKERS,
        micro_batch=MICRO_BATCH,
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
        job = Job(point=point, rank=rank, device=CPU, loss=loss, servers=servers)
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
    model = job.point.workload.build()
    mode, clock, steps = load_mode(job.point.sync)(job), CpuClock(), batches_of_steps(job)
    mode.prepare(model, functools.partial(make_optimizer, point=job.point))
    trained = mode.trained or model
    clock.start()
    mode.begin_period(0)
    # Kept until the end: an exchange of them would hold workers up that run apart.
    kept = [weights(trained)]
    for step in range(1, run.steps + 1):
        mode.step(next(steps), clock)
        clock.end_step()
        if step % CHECKPOINT_STEPS == 0:
            kept.append(weights(trained))
        if step >= STEPS and step % LOOK_STEPS == 0 and _is_below(job, kept, run.target):
            break
    mode.drain()
    late = mode.counters().get("staleness")
    mode.close()
    per_checkpoint = CHECKPOINT_STEPS * job.point.global_batch
    return Curve(
        samples=[place * per_checkpoint for place in range(len(kept))],
        losses=_held_out_losses(job, kept),
        staleness=None if late is None else float(np.mean(late)),
    )


def _is_below(job: Job, kept: Sequence[Weights], target: float | None) -> bool:
    """True if the loss was below the target since the last look; the same on all ranks."""
    if target is None:
        return False
    losses = _held_out_losses(job, kept[-LOOK_STEPS // CHECKPOINT_STEPS :])
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
