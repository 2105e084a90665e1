"""Speed of dtsweep's loop against a plain PyTorch loop, and of a session against a fresh launch.

Four comparisons of samples per second, for a compute-heavy and a communication-heavy point, and for
two whose steps take 5 ms and next to no time, where what the instruments cost per step shows best;
the second of them also for `zero1` and `fsdp` against the same written by hand with torch:

- in turns of ten steps: on one model the plain loop, dtsweep's loop that reads the clock at the two
  ends alone, and the same with all instruments (steps and phases are timed, the window is looked
  at, the host is watched) take turns in an order that is drawn. A launch gives the mean of the
  differences, a tenth of them cut off at both ends; the intervals are Student's t over launches.
  What a window pays once, when it begins, is not in it.
- same ranks: dtsweep's loop (`dtsweep.session.attempt`) and the plain loop below take turns, ABBA,
  in one launch of torchrun. A pair of neighbouring blocks gives a ratio; the interval of the median
  ratio is by order statistics. In how many pairs the plain loop's wall clock per step lies in the
  interval of dtsweep's row is counted: that of the mean step, made from the steps of all ranks as
  any row is. The plain loop's block varies as much as the row's: of intervals that hold the truth
  in 95 % this counts 83 %, and again 95 % where they are made √2 times as wide, counted too.
- separate launches: each loop alone in launches of torchrun that take turns.
- session and fresh: the last of three trials in a session, and one trial in a launch of its own,
  taking turns.

Launches of one and the same job differ by several percent, so the last two can't tell as little
apart as the first; the interval of their ratio of medians is a percentile bootstrap over launches.
All blocks have the same number of steps, after the same warm-up; a rate is that of the whole world
until its slowest rank is done. The plain loop leaves Python's garbage collector on, as plain loops
do; dtsweep turns it off inside the window.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import distributed, nn

from benchmarks.by_hand import BY_HAND
from benchmarks.log_entry import heading, quartiles, run, table, torchrun
from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.hardware.memory import release_memory
from dtsweep.measure.clock import CpuClock, CudaClock
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.measure.statistics import students_t
from dtsweep.metrics.summary import window_columns
from dtsweep.metrics.window_view import mark_warmup, view_of
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import loss_in_precision, make_optimizer
from dtsweep.worker.loop import ModeLoop
from dtsweep.worker.rank import RankContext, become_rank, take_device
from dtsweep.worker.timing import make_window


class Compared(NamedTuple):
    """What both loops train."""

    workload: workloads.Gpt
    micro_batch: int
    sync: str = "ddp"
    optimizer: str = "sgd"


POINTS: Mapping[str, Compared] = {
    "compute-heavy": Compared(workloads.Gpt(layers=2, width=128, sequence=64), 64),
    "communication-heavy": Compared(
        workloads.Gpt(layers=1, width=512, sequence=8, vocabulary=8192), 1
    ),
    "short": Compared(workloads.Gpt(layers=2, width=64, sequence=64), 4),
    "tiny": Compared(workloads.Gpt(layers=1, width=32, sequence=16), 1),
    "zero1": Compared(workloads.Gpt(layers=2, width=256, sequence=64), 4, "zero1", "adamw"),
    "fsdp": Compared(workloads.Gpt(layers=2, width=256, sequence=64), 4, "fsdp", "adamw"),
}
"""By name; those that shard are compared in the same ranks alone."""

WARMUP = 5
"""Steps before every block, in both loops."""

FEW = 10
"""Fewest steps of a block, and those of a turn and of the block that sets the others' length."""

TURN_LAUNCHES = 6
"""Launches in which loops take turns.

The layout of memory makes one of the loops faster, differently in each launch.
"""

DTSWEEP, PLAIN, EDGE = "dpe"
"""How the loops are called in a row of blocks, such as dppd."""

LEARNING_RATES = (0.008, 0.009, 0.01)
"""The trials of a session; the last one is compared."""


def plain_loop(point: Point, *, rank: int, device: torch.device, steps: int) -> float:
    """Train as a PyTorch user writes it by hand; return the seconds of the steps on this rank."""
    torch.manual_seed(0)
    workload = point.workload
    model, optimizer = BY_HAND[point.sync](workload.build().to(device).train(), point, device)

    def train(first: int, last: int) -> None:
        for step in range(first, last):
            start = (step * point.workers + rank) * point.micro_batch
            train_step(
                point,
                model,
                optimizer,
                workload.batch(range(start, start + point.micro_batch), device),
            )
        wait_for(device)

    train(0, WARMUP)
    distributed.barrier()
    began = time.perf_counter()
    train(WARMUP, WARMUP + steps)
    seconds = time.perf_counter() - began
    distributed.barrier()
    return seconds


def train_step(
    point: Point, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any
) -> None:
    """What every loop does in a step."""
    point.workload.loss(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()


def wait_for(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Block(NamedTuple):
    """Samples per second of a block.

    The row's 95 % interval of the mean step where there is one.
    """

    rate: float
    low_s: float = math.nan
    high_s: float = math.nan


def plain_block(sweep: Sweep, context: RankContext) -> Block:
    """Time the plain loop."""
    point = candidates(sweep)[0].point
    seconds = plain_loop(
        point, rank=context.rank, device=context.device, steps=sweep.measure.max_steps
    )
    release_memory(context.device)
    return Block(
        point.global_batch * sweep.measure.max_steps / max_over_ranks(context.device, seconds)[0]
    )


def dtsweep_block(sweep: Sweep, context: RankContext) -> Block:
    """Time the window that dtsweep measures, and make its row's figures."""
    measured = run_attempt(context, common_task(sweep)).measured
    assert measured is not None, "this rank's attempt failed; its traceback is above"
    point, everyone = candidates(sweep)[0].point, [measured] * distributed.get_world_size()
    distributed.all_gather_object(everyone, measured)
    row = window_columns(point, view_of(point, mark_warmup(point, everyone)))
    samples = point.global_batch * sweep.measure.max_steps
    rate = samples / max(rank.window_s for rank in everyone)
    return Block(rate, row["step_mean_s_low"], row["step_mean_s_high"])


def common_task(sweep: Sweep) -> Task:
    """The task of the sweep's point, the same on all ranks: the attempt's name is drawn."""
    tasks = [task_of(sweep, candidates(sweep)[0].point)]
    distributed.broadcast_object_list(tasks, src=0)
    return tasks[0]


class EdgeClock(CpuClock):
    """Reads the time at the two ends of a block alone."""

    def mark(self, phase: str) -> None:
        """Nothing is timed between the ends."""

    def end_step(self) -> None:
        """No step is either."""


def steps_in_turns(sweep: Sweep, context: RankContext, rounds: int) -> NDArray[np.float64]:
    """Time `FEW` steps of each loop in turns, on one model.

    Returns:
        (rounds, 3) seconds of the slowest rank: plain, edge-only, instrumented.
    """
    point = candidates(sweep)[0].point
    job = Job(
        point=point,
        rank=context.rank,
        device=context.device,
        loss=loss_in_precision(point, context.device),
    )
    mode: Any = load_mode(point.mode)(job)
    torch.manual_seed(0)
    mode.prepare(
        point.workload.build().to(context.device).train(),
        functools.partial(make_optimizer, point=point),
    )
    loop = ModeLoop(job, mode)
    loop.run("warmup", range(WARMUP))
    (period_s,) = max_over_ranks(context.device, float(loop.segments[-1].times["step_s"].mean()))
    clock, edge = (
        loop.clock,
        EdgeClock() if context.device.type == "cpu" else EdgeCudaClock(context.device),
    )
    # Looked at all the time, and never sure.
    steps = (rounds + 1) * FEW
    measure = replace(sweep.measure, half_width=0.02, min_steps=steps, max_steps=steps)
    window = iter(make_window(loop, replace(common_task(sweep), measure=measure), period_s))

    def run(kind: str) -> float:
        distributed.barrier()
        if kind == PLAIN:
            began = time.perf_counter()
            for _ in range(FEW):
                train_step(point, mode._model, mode._optimizer, next(loop.next_batches()))
            wait_for(context.device)
            return time.perf_counter() - began
        loop.clock = clock if kind == DTSWEEP else edge
        return loop.run("window", itertools.islice(window, FEW) if kind == DTSWEEP else range(FEW))

    kinds, rng = (PLAIN, EDGE, DTSWEEP), np.random.default_rng(0)
    seconds = np.zeros((rounds, len(kinds)))
    with context.telemetry.sampled():
        context.telemetry.start()
        for turn in range(rounds):
            for kind in rng.permutation(len(kinds)):
                seconds[turn, kind] = run(kinds[kind])
            del loop.segments[1:]
        context.telemetry.stop()
    mode.close()
    everyone = [seconds] * distributed.get_world_size()
    distributed.all_gather_object(everyone, seconds)
    slowest: NDArray[np.float64] = np.max(everyone, axis=0)
    return slowest


class EdgeCudaClock(CudaClock):
    """The same on a GPU: it is waited for at the two ends."""

    def mark(self, phase: str) -> None:
        """Nothing is timed between the ends."""

    def end_step(self) -> None:
        """No step is either."""


BLOCKS: Mapping[str, Callable[[Sweep, RankContext], Block]] = {
    DTSWEEP: dtsweep_block,
    PLAIN: plain_block,
}


def be_a_rank(options: argparse.Namespace) -> None:
    """Run the blocks of one launch; rank 0 prints their samples per second as JSON."""
    sweep = sweep_of(options.ranks, workers=int(os.environ["WORLD_SIZE"]), steps=options.steps)
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    context = become_rank(
        distributed.get_rank(), device, workload=sweep.workload, own_variables=["OMP_NUM_THREADS"]
    )
    rates: list[Any] = []
    if options.rounds:
        rates = steps_in_turns(sweep, context, options.rounds).tolist()
    for loop in options.blocks or "":
        rates.append(BLOCKS[loop](sweep, context))
        if len(rates) == 1:
            gc.freeze()  # as a session does
    if context.rank == 0:
        print(json.dumps(rates), flush=True)
    distributed.destroy_process_group()


def sweep_of(name: str, *, workers: int, steps: int) -> Sweep:
    """A sweep of the one point, with so many steps in its window."""
    workload, micro_batch, sync, optimizer = POINTS[name]
    return Sweep(
        workload=workload,
        axes={
            "workers": [workers],
            "micro_batch": [micro_batch],
            "sync": [sync],
            "optimizer": [optimizer],
        },
        measure=Measure(
            repeats=1,
            warmup_steps=WARMUP,
            min_steps=steps,
            max_steps=steps,
            min_seconds=0,
            max_seconds=600,
            canary=False,
        ),
    )


def session(name: str, blocks: str, *, steps: int, workers: int) -> NDArray[np.float64]:
    """Run blocks in one launch of torchrun; return each of them: (blocks, fields of `Block`)."""
    arguments = ["--ranks", name, "--blocks", blocks, "--steps", str(steps)]
    return np.array(
        json.loads(torchrun("benchmarks.fidelity", *arguments, workers=workers)), dtype=np.float64
    )


def same_ranks(name: str, *, pairs: int, steps: int, workers: int) -> list[str]:
    """Both loops in turns in one launch: a row.

    The first two blocks, which start everything, are left out.
    """
    turns = "".join(
        DTSWEEP + PLAIN if index % 2 == 0 else PLAIN + DTSWEEP for index in range(pairs)
    )
    found = session(name, DTSWEEP + PLAIN + turns, steps=steps, workers=workers)[2:]
    ours, plain = (found[[turn == loop for turn in turns]] for loop in (DTSWEEP, PLAIN))
    micro_batch = POINTS[name].micro_batch
    wall_s = micro_batch * workers / plain[:, 0]
    mean_s, reach_s = ours[:, 1:].mean(axis=1), (ours[:, 2] - ours[:, 1]) / 2
    inside, nearly = (
        int(np.sum(abs(wall_s - mean_s) <= reach_s * factor)) for factor in (1, 2**0.5)
    )
    what = (
        f"same ranks, ABBA; the plain loop's wall per step lies in {inside} of {pairs} rows' "
        f"intervals (±{np.median(reach_s / mean_s):.1%}), in {nearly} of those √2 times as wide"
    )
    return row(what, {DTSWEEP: ours[:, 0], PLAIN: plain[:, 0]}, paired=True)


def in_turns(name: str, *, rounds: int, workers: int) -> list[list[str]]:
    """What a step pays for dtsweep's loop, and for its instruments: two rows."""
    arguments = ["--ranks", name, "--rounds", str(rounds), "--steps", str(FEW)]
    launches = [
        np.array(json.loads(torchrun("benchmarks.fidelity", *arguments, workers=workers)))
        / FEW
        * 1e6
        for _ in range(TURN_LAUNCHES)
    ]
    rows = []
    for what, (other, base) in {
        "instrumented to plain": (2, 0),
        "edge-only to plain": (1, 0),
    }.items():
        # A pause falls on whom it will.
        more = np.array(
            [stats.trim_mean(found[:, other] - found[:, base], 0.1) for found in launches]
        )
        step = np.array([np.median(found[:, base]) for found in launches])
        low, high = with_interval(more / step)[1:]
        mean, least, most = with_interval(more)
        spread = [
            quartiles([1e6 / float(np.median(found[:, kind])) for found in launches], form=".4g")
            for kind in (other, base)
        ]
        shown = [
            f"{1 / (1 + (more / step).mean()):.4f}",
            f"{1 / (1 + high):.4f}–{1 / (1 + low):.4f}",
        ]
        title = f"{what}, one model, {rounds} turns of {FEW} steps in each launch; steps/s"
        rows.append(
            [title, str(TURN_LAUNCHES), *spread, *shown, f"{mean:.0f} ({least:.0f}–{most:.0f})"]
        )
    return rows


def with_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean and the ends of its 95 % interval, by Student's t."""
    mean, error = float(values.mean()), float(stats.sem(values))
    reach = float(students_t(len(values) - 1)) * error
    return mean, mean - reach, mean + reach


def separate(
    name: str, *, launches: int, steps: int, workers: int
) -> dict[str, NDArray[np.float64]]:
    """Each loop in launches of its own, in turns."""
    rates: dict[str, list[float]] = {loop: [] for loop in BLOCKS}
    for index in range(launches):
        for loop in sorted(BLOCKS, reverse=index % 2 == 1):
            rates[loop] += list(session(name, loop, steps=steps, workers=workers)[:, 0])
    return {loop: np.array(values) for loop, values in rates.items()}


def sessions(
    name: str, *, launches: int, steps: int, workers: int
) -> dict[str, NDArray[np.float64]]:
    """The last trial of a session, and a trial alone, in turns.

    A session's trials differ in their learning rates.
    """
    sweep = sweep_of(name, workers=workers, steps=steps)
    rates: dict[str, list[float]] = {"session": [], "fresh": []}
    for index in range(launches):
        for kind in sorted(rates, reverse=index % 2 == 1):
            fresh = kind == "fresh"
            axes = {
                **sweep.axes,
                "learning_rate": list(LEARNING_RATES[-1:] if fresh else LEARNING_RATES),
            }
            one = replace(sweep, axes=axes, measure=replace(sweep.measure, fresh=fresh))
            with tempfile.TemporaryDirectory(prefix="dtsweep-fidelity-") as folder:
                frame = run(one, folder)
            rates[kind].append(float(frame["samples_per_s"].iloc[-1]))
    return {kind: np.array(values) for kind, values in rates.items()}


def row(what: str, rates: Mapping[str, NDArray[np.float64]], *, paired: bool = False) -> list[str]:
    """Two series: count, medians with quartiles, and the ratio of the first to the second."""
    first, second = rates.values()
    if paired:
        ratio = float(np.median(first / second))
        low, high = stats.quantile_test(first / second, p=0.5).confidence_interval()  # type: ignore[misc]  # no float
    else:
        ratio = float(np.median(first) / np.median(second))
        draws = np.random.default_rng(0).integers(len(first), size=(2, 10_000, len(first)))
        resampled = np.median(first[draws[0]], axis=1) / np.median(second[draws[1]], axis=1)
        low, high = np.quantile(resampled, [0.025, 0.975]) if len(first) > 2 else (np.nan, np.nan)
    spread = [quartiles(values, form=".4g") for values in (first, second)]
    return [what, str(len(first)), *spread, f"{ratio:.4f}", f"{low:.4f}–{high:.4f}", ""]


def measured(name: str, options: argparse.Namespace) -> list[list[str]]:
    """All rows of a point."""
    size = {"workers": options.workers, "steps": FEW}
    workload, micro_batch, sync, _ = POINTS[name]
    rate = session(name, DTSWEEP + DTSWEEP, **size)[-1, 0]
    size["steps"] = max(FEW, round(options.seconds * rate / (micro_batch * options.workers)))
    parameters = sum(tensor.numel() for tensor in workload.build().parameters()) / 1e6
    kind = (
        f"{name}: {parameters:.1f} M parameters, micro_batch {micro_batch}, {size['steps']} steps"
    )
    if sync != "ddp":
        return [[kind, *[""] * 6], same_ranks(name, pairs=options.pairs, **size)]
    return [
        [kind, *[""] * 6],
        *in_turns(name, rounds=10 * options.pairs, workers=options.workers),
        same_ranks(name, pairs=options.pairs, **size),
        *(
            [
                row("separate launches", separate(name, launches=options.launches, **size)),
                row("session against fresh", sessions(name, launches=options.launches, **size)),
            ]
            if options.launches
            else []
        ),
    ]


def main() -> None:
    """Measure all points and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fidelity", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--pairs", type=int, default=16, help="pairs of blocks in the same ranks (default 16)"
    )
    parser.add_argument(
        "--launches",
        type=int,
        default=5,
        help="launches of each kind, 0 leaves them out (default 5)",
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="length of a block, about (default 2)"
    )
    parser.add_argument("--workers", type=int, default=2, help="(default 2)")
    parser.add_argument(
        "--points", nargs="+", choices=POINTS, default=list(POINTS), help="(default all)"
    )
    for internal in ("--ranks", "--blocks"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    for number in ("--steps", "--rounds"):
        parser.add_argument(number, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranks:
        be_a_rank(options)
        return
    rows = [cells for name in options.points for cells in measured(name, options)]
    compared = ["dtsweep or session, samples/s", "edge-only, plain or fresh"]
    headers = ["what", "n each", *compared, "ratio", "95 % interval", "more per step, µs"]
    note = (
        f"{options.workers} workers; median (quartiles); "
        "how the intervals are made: benchmarks/fidelity.py."
    )
    print(
        heading("Does dtsweep's loop train as fast as a plain PyTorch loop?"),
        table(headers, rows),
        note,
        sep="\n\n",
    )


if __name__ == "__main__":
    main()
