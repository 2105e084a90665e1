"""Does dtsweep's loop train as fast as a plain PyTorch loop, and a session as fast as a fresh launch?

Three comparisons of samples per second, for a compute-heavy and a communication-heavy point:

- same ranks: dtsweep's loop (`dtsweep.worker.attempt`) and the plain loop below take turns, ABBA, in one launch of
  torchrun. A pair of neighbouring blocks gives a ratio; the interval of the median ratio is by order statistics.
- separate launches: each loop alone in launches of torchrun that take turns.
- session and fresh: the last of three trials in a session, and one trial in a launch of its own, taking turns.

Launches of one and the same job differ by several percent, so the last two can't tell as little apart as the first;
the interval of their ratio of medians is a percentile bootstrap over launches. All blocks have the same number of
steps, after the same warm-up; a rate is that of the whole world until its slowest rank is done. The plain loop
leaves Python's garbage collector on, as plain loops do; dtsweep turns it off inside the window.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed.nn.functional  # before a group exists, as dtsweep.control says
from numpy.typing import NDArray
from scipy import stats
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.log_entry import heading, quartiles, run, table, torchrun
from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.axes import candidates
from dtsweep.measure.memory import clean
from dtsweep.order import order_of
from dtsweep.record import trial_row
from dtsweep.worker import Team, attempt

POINTS: Mapping[str, tuple[workloads.Gpt, int]] = {
    "compute-heavy": (workloads.Gpt(layers=2, width=128, sequence=64), 64),
    "communication-heavy": (workloads.Gpt(layers=1, width=512, sequence=8, vocabulary=8192), 1),
}
"""By name: the workload and the micro-batch."""

WARMUP = 5
"""Steps before every block, in both loops."""

FEW = 10
"""Steps of the block by which the length of the others is found; the least that a block has."""

DTSWEEP, PLAIN = "dp"
"""How the two loops are called in a row of blocks, such as dppd."""

LEARNING_RATES = (0.008, 0.009, 0.01)
"""The trials of a session; the last one is compared."""


def plain_loop(point: Point, *, rank: int, device: torch.device, steps: int) -> float:
    """Train as a PyTorch user writes it by hand; return the seconds that the steps took on this rank."""
    torch.manual_seed(0)
    workload = point.workload
    on_gpu = device.type == "cuda"
    model = DistributedDataParallel(workload.build().to(device).train(), device_ids=[device] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=point.learning_rate)

    def train(first: int, last: int) -> None:
        for step in range(first, last):
            start = (step * point.workers + rank) * point.micro_batch
            batch = workload.batch(range(start, start + point.micro_batch), device)
            loss = workload.loss(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if on_gpu:
            torch.cuda.synchronize(device)

    train(0, WARMUP)
    distributed.barrier()
    began = time.perf_counter()
    train(WARMUP, WARMUP + steps)
    seconds = time.perf_counter() - began
    distributed.barrier()
    return seconds


def plain_block(sweep: Sweep, team: Team) -> float:
    """Samples per second of the plain loop."""
    point = candidates(sweep)[0].point
    seconds = plain_loop(point, rank=team.rank, device=team.device, steps=sweep.measure.max_steps)
    clean(team.device)
    slowest = torch.tensor([seconds], dtype=torch.float64).to(team.device)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    return point.global_batch * sweep.measure.max_steps / float(slowest)


def dtsweep_block(sweep: Sweep, team: Team) -> float:
    """Samples per second as dtsweep measures and records them."""
    orders = [order_of(sweep, candidates(sweep)[0].point)]
    # The attempt's name is drawn: all ranks take rank 0's.
    distributed.broadcast_object_list(orders, src=0)
    outcomes: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(outcomes, attempt(team, orders[0]))
    return float(trial_row(sweep, orders[0], dict(enumerate(outcomes)))["samples_per_s"])


BLOCKS: Mapping[str, Callable[[Sweep, Team], float]] = {DTSWEEP: dtsweep_block, PLAIN: plain_block}


def be_a_rank(options: argparse.Namespace) -> None:
    """Run the blocks of one launch; rank 0 prints their samples per second as JSON."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    sweep = sweep_of(options.ranks, workers=distributed.get_world_size(), steps=options.steps)
    team = Team(rank=distributed.get_rank(), device=device, workload=sweep.workload)
    rates = []
    for loop in options.blocks:
        rates.append(BLOCKS[loop](sweep, team))
        if len(rates) == 1:
            gc.freeze()  # as a session does
    if team.rank == 0:
        print(json.dumps(rates), flush=True)
    distributed.destroy_process_group()


def sweep_of(name: str, *, workers: int, steps: int) -> Sweep:
    """A sweep of the one point, with so many steps in its window."""
    workload, micro_batch = POINTS[name]
    return Sweep(
        workload=workload,
        axes={"workers": [workers], "micro_batch": [micro_batch]},
        measure=Measure(warmup_steps=WARMUP, min_steps=steps, max_steps=steps, min_seconds=0, max_seconds=600),
    )


def launch(name: str, blocks: str, *, steps: int, workers: int) -> list[float]:
    """Run blocks in one launch of torchrun; return the samples per second of each."""
    arguments = ["--ranks", name, "--blocks", blocks, "--steps", str(steps)]
    rates: list[float] = json.loads(torchrun("benchmarks.fidelity", *arguments, workers=workers))
    return rates


def same_ranks(name: str, *, pairs: int, steps: int, workers: int) -> dict[str, NDArray[np.float64]]:
    """Both loops in turns in one launch; the first two blocks, which start everything, are left out."""
    turns = "".join(DTSWEEP + PLAIN if index % 2 == 0 else PLAIN + DTSWEEP for index in range(pairs))
    rates = np.array(launch(name, DTSWEEP + PLAIN + turns, steps=steps, workers=workers)[2:])
    return {loop: rates[[turn == loop for turn in turns]] for loop in BLOCKS}


def separate(name: str, *, launches: int, steps: int, workers: int) -> dict[str, NDArray[np.float64]]:
    """Each loop in launches of its own, in turns."""
    rates: dict[str, list[float]] = {loop: [] for loop in BLOCKS}
    for index in range(launches):
        for loop in sorted(BLOCKS, reverse=index % 2 == 1):
            rates[loop] += launch(name, loop, steps=steps, workers=workers)
    return {loop: np.array(values) for loop, values in rates.items()}


def sessions(name: str, *, launches: int, steps: int, workers: int) -> dict[str, NDArray[np.float64]]:
    """The last trial of a session, and a trial alone, in turns; learning rates tell a session's trials apart."""
    sweep = sweep_of(name, workers=workers, steps=steps)
    rates: dict[str, list[float]] = {"session": [], "fresh": []}
    for index in range(launches):
        for kind in sorted(rates, reverse=index % 2 == 1):
            fresh = kind == "fresh"
            axes = {**sweep.axes, "learning_rate": list(LEARNING_RATES[-1:] if fresh else LEARNING_RATES)}
            one = replace(sweep, axes=axes, measure=replace(sweep.measure, fresh=fresh))
            with tempfile.TemporaryDirectory(prefix="dtsweep-fidelity-") as folder:
                frame = run(one, folder)
            rates[kind].append(float(frame["samples_per_s"].iloc[-1]))
    return {kind: np.array(values) for kind, values in rates.items()}


def row(what: str, rates: Mapping[str, NDArray[np.float64]], *, paired: bool = False) -> list[str]:
    """Two series side by side: count, medians with quartiles, and the ratio of the first to the second."""
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
    return [what, str(len(first)), *spread, f"{ratio:.4f}", f"{low:.4f}–{high:.4f}"]


def measured(name: str, options: argparse.Namespace) -> list[list[str]]:
    """All rows of a point."""
    size = {"workers": options.workers, "steps": FEW}
    workload, micro_batch = POINTS[name]
    rate = launch(name, DTSWEEP + DTSWEEP, **size)[-1]
    size["steps"] = max(FEW, round(options.seconds * rate / (micro_batch * options.workers)))
    parameters = sum(tensor.numel() for tensor in workload.build().parameters()) / 1e6
    kind = f"{name}: {parameters:.1f} M parameters, micro_batch {micro_batch}, {size['steps']} steps"
    return [
        row(f"{kind}; same ranks, ABBA", same_ranks(name, pairs=options.pairs, **size), paired=True),
        row("separate launches", separate(name, launches=options.launches, **size)),
        row("session against fresh", sessions(name, launches=options.launches, **size)),
    ]


def main() -> None:
    """Measure all points and print an entry for docs/log.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=16, help="pairs of blocks in the same ranks (default 16)")
    parser.add_argument("--launches", type=int, default=5, help="launches of each kind (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a block, about (default 2)")
    parser.add_argument("--workers", type=int, default=2, help="(default 2)")
    parser.add_argument("--points", nargs="+", choices=POINTS, default=list(POINTS), help="(default both)")
    for internal in ("--ranks", "--blocks"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranks:
        be_a_rank(options)
        return
    rows = [cells for name in options.points for cells in measured(name, options)]
    headers = ["what", "n each", "dtsweep or session, samples/s", "plain or fresh, samples/s", "ratio", "95 % interval"]
    note = f"{options.workers} workers; median (quartiles); how the intervals are made: benchmarks/fidelity.py."
    print(heading("Does dtsweep's loop train as fast as a plain PyTorch loop?"), table(headers, rows), note, sep="\n\n")


if __name__ == "__main__":
    main()
