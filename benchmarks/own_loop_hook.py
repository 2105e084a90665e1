"""Cost of following a user's training loop: microseconds per step inside its window.

Each rank runs the same bare loop, by turns alone and inside a window: an optimizer's step that does
nothing, and a batch of a loader that is no work to make. The difference is what hooks, clocks,
counts and the ranks' agreement on the window's end take. Ranks agree as often as with steps of
10 ms: the steps of the warm-up last as long. Times are the CPU's for the loop's thread: on a
machine with other work, waiting for a core is many times the hook.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import pickle
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.distributed import distributed_c10d
from torch.multiprocessing.spawn import start_processes
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.log_entry import heading, quartiles, table
from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.loops.own_loop import OwnLoop
from dtsweep.measure.store_group import StoreGroup
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import become_rank

LIMIT_US = 20.0
"""Microseconds that a step of the hook may cost."""

WARMUP, STEP_S = 20, 0.01
"""Steps before the window, and the length of each."""

LEFT_OUT = 50
"""Steps at both ends of the window that are not counted."""

WORKLOAD = workloads.Gpt(layers=1, width=16, sequence=8)
MEASURE = Measure(repeats=1, half_width=None, warmup_steps=WARMUP, min_seconds=0, max_seconds=60)


class Batches(IterableDataset[torch.Tensor]):
    """One tensor again and again."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield it without end."""
        return itertools.repeat(torch.zeros(8))


class Still(torch.optim.SGD):
    """An optimizer whose steps do nothing."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no loss
        """Leave all as it is."""


def train(marks: list[float], *, steps: int, kind: str, slow_steps: int) -> None:
    """Take steps, the first ones with sleep; note the CPU time after those and after the last."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = Still([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    batches = iter(DataLoader(Batches(), batch_size=None))
    for step in range(slow_steps + 2 * steps):
        next(batches)
        if kind == "scaler":
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if step < slow_steps:
            time.sleep(STEP_S)
        elif step in (slow_steps + LEFT_OUT, slow_steps + steps - LEFT_OUT):
            marks.append(time.thread_time())


@dataclass(frozen=True, kw_only=True)
class Options:
    """Sizes of the benchmark."""

    rounds: int
    steps: int
    port: int


def measure_on(rank: int, folder: Path, workers: int, options: Options) -> None:
    """Run loops alone and in windows by turns; write the mean step of each of them."""
    torch.set_num_threads(1)
    store = None
    if workers > 1:
        store = distributed.TCPStore("127.0.0.1", options.port, workers, rank == 0)  # type: ignore[attr-defined]  # missing in torch's stub
    context = become_rank(rank, torch.device("cpu"), workload=WORKLOAD, own_variables=())
    steps = options.steps
    measure = replace(MEASURE, min_steps=steps, max_steps=steps)
    sweep = Sweep(workload=WORKLOAD, axes={"workers": [workers]}, measure=measure)
    task = task_of(sweep, Point(workload=WORKLOAD, workers=workers))
    means: dict[str, list[float]] = {}
    for number, kind in itertools.product(range(options.rounds), ("step", "scaler")):
        marks: list[float] = []
        run = functools.partial(train, marks, steps=steps, kind=kind)
        run(slow_steps=0)
        keys = None
        if store is not None:
            keys = distributed_c10d.PrefixStore(f"{number} {kind}", store)
        group = StoreGroup(keys, rank=rank, workers=workers, timeout_s=60)
        OwnLoop(task, context, group).run(functools.partial(run, slow_steps=WARMUP))
        alone, followed = np.diff(np.array(marks).reshape(2, 2)).ravel() / (steps - 2 * LEFT_OUT)
        means.setdefault(f"{kind} alone", []).append(float(alone))
        means.setdefault(f"{kind} followed", []).append(float(followed))
    (folder / f"{rank}.means").write_bytes(pickle.dumps(means))


def costs(workers: int, options: Options) -> dict[str, list[float]]:
    """Cost of the hook in microseconds per step, by kind of step and round, mean of the ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start_processes(
            measure_on, args=(folder, workers, options), nprocs=workers, start_method="spawn"
        )
        ranks = [
            pickle.loads((folder / f"{rank}.means").read_bytes())  # written above
            for rank in range(workers)
        ]
    found = {}
    for kind in ("step", "scaler"):
        alone, followed = (
            np.mean([rank[f"{kind} {how}"] for rank in ranks], axis=0)
            for how in ("alone", "followed")
        )
        found[kind] = [float(cost) for cost in (followed - alone) * 1e6]
    return found


def main() -> None:
    """Print an entry; fail where a median is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="loops of each kind")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of a window")
    given = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = Options(rounds=given.rounds, steps=given.steps, port=port)
    rows, highest = [], 0.0
    for workers in (1, 2):
        for kind, values in costs(workers, options).items():
            rows.append([str(workers), kind, quartiles(values, form=".1f")])
            highest = max(highest, float(np.median(values)))
    numbers = table(["workers", "step by", "µs per step, median (quartiles)"], rows)
    print(heading("What does following a user's loop cost?"), "", numbers, sep="\n")
    if highest > LIMIT_US:
        raise SystemExit(f"{highest:.1f} µs per step are above the limit of {LIMIT_US:g}")


if __name__ == "__main__":
    main()
