"""Step time of one model as a script of the user, and as a workload with three methods.

Both train the same samples with the functions of `benchmarks/loops/in_memory.py`. They take turns,
ABBA, in the same ranks of one launch of torchrun, through `dtsweep.worker.attempt`, which also
measures the trials of a session. A pair of neighbouring blocks gives the ratio of their mean steps.
The interval of the mean ratio is Student's t over pairs, that of the median ratio is by order
statistics. All blocks have the same number of steps after the same warm-up.

The cost of the hooks is measured alone: an optimizer steps on a parameter without a gradient, with
hooks and without, in turns.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import distributed, nn

from benchmarks.fidelity import with_interval
from benchmarks.log_entry import ROOT, heading, quartiles, table, torchrun
from benchmarks.loops import in_memory
from dtsweep import Measure, Sweep, workloads
from dtsweep.measure.isolated_exchange import mean_over_ranks
from dtsweep.measure.store_group import StoreGroup
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.own_loop import OwnLoop
from dtsweep.worker.rank import RankContext, become_rank, take_device

SCRIPT = ROOT / "benchmarks" / "loops" / "in_memory.py"
WARMUP = 10
"""Steps before every window."""

AS_SCRIPT, BY_METHODS = "sm"
"""Names of the two in a row of blocks, such as smms."""

FEW = 30
"""Steps of the blocks that set the others' length."""

HOOK_STEPS = 2000
"""Steps of a turn with hooks or without."""


@dataclass(frozen=True)
class ByMethods:
    """The script's model by its three methods."""

    width: int = 128

    def build(self) -> nn.Module:
        """Make the model."""
        return in_memory.Decoder(self.width)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        """Take samples from memory."""
        return in_memory.take_batch(_data(device), samples)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        return in_memory.loss_of(model, batch)


def _data(device: torch.device, made: dict[str, torch.Tensor] = {}) -> torch.Tensor:  # noqa: B006  # kept
    if str(device) not in made:
        made[str(device)] = in_memory.make_data(device)
    return made[str(device)]


def sweep_of(kind: str, options: argparse.Namespace, *, workers: int) -> Sweep:
    """The sweep of one point whose window has so many steps."""
    steps = options.steps
    measure = Measure(
        repeats=1,
        warmup_steps=WARMUP,
        half_width=None,
        min_steps=steps,
        max_steps=steps,
        min_seconds=0,
        max_seconds=600,
        canary=False,
        exchange="off",
    )
    axes: dict[str, Any] = {"workers": [workers], "micro_batch": [options.batch]}
    if kind == BY_METHODS:
        return Sweep(workload=ByMethods(options.width), axes=axes, measure=measure)
    script = workloads.Script(
        str(SCRIPT),
        args={"width": options.width},
        names={"micro_batch": "batch-size"},
        samples_per_step=options.batch,
    )
    return Sweep(workload=script, axes=axes, measure=measure)


def block(sweep: Sweep, context: RankContext) -> float:
    """Mean step of a block in seconds, the mean over ranks."""
    context = replace(context, workload=sweep.workload)
    result = run_attempt(context, _common_task(sweep))
    assert result.measured is not None, result.reason
    mean_s = result.measured.of_part("step_s").mean()
    return float(mean_over_ranks(context.device, np.array([mean_s]))[0])


def _common_task(sweep: Sweep) -> Task:
    """One task for all ranks: the name of an attempt is drawn."""
    tasks = [task_of(sweep, candidates(sweep)[0].point)]
    distributed.broadcast_object_list(tasks, src=0)
    return tasks[0]


def be_a_rank(options: argparse.Namespace) -> None:
    """Run blocks in turns in one launch; rank 0 prints their mean steps as JSON."""
    workers = int(os.environ["WORLD_SIZE"])
    sweep = sweep_of(BY_METHODS, options, workers=workers)
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    context = become_rank(
        distributed.get_rank(), device, workload=sweep.workload, own_variables=["OMP_NUM_THREADS"]
    )
    means = []
    for index, kind in enumerate(options.blocks):
        means.append(block(sweep_of(kind, options, workers=workers), context))
        if index == 1:
            gc.freeze()  # as a session does
    if context.rank == 0:
        print("means", json.dumps(means), flush=True)
    distributed.destroy_process_group()


def launched(options: argparse.Namespace, blocks: str, *, steps: int) -> NDArray[np.float64]:
    """Run blocks in one launch of torchrun; return each one's mean step in seconds."""
    size = {name: getattr(options, name) for name in ("batch", "width")}
    words = [f"--{name}={value}" for name, value in size.items()]
    arguments = ["--blocks", blocks, "--steps", str(steps), *words]
    said = torchrun("benchmarks.same_loop", *arguments, workers=options.workers)
    (line,) = (line for line in said.splitlines() if line.startswith("means "))
    return np.array(json.loads(line.removeprefix("means ")))


def in_turns(options: argparse.Namespace) -> list[str]:
    """Compare the two in turns: a row. The first two blocks, which start everything, are no pair.

    Their length is that of a launch before.
    """
    step_s = launched(options, AS_SCRIPT + BY_METHODS, steps=FEW).mean()
    steps = max(FEW, round(options.seconds / step_s))
    pairs = (AS_SCRIPT + BY_METHODS, BY_METHODS + AS_SCRIPT)
    turns = "".join(itertools.islice(itertools.cycle(pairs), options.pairs))
    means = launched(options, AS_SCRIPT + BY_METHODS + turns, steps=steps)[2:]
    is_script = np.array([kind == AS_SCRIPT for kind in turns])
    script, methods = means[is_script], means[~is_script]
    ratio, low, high = with_interval(script / methods)
    middle: Any = stats.quantile_test(script / methods, p=0.5).confidence_interval()
    shown = [quartiles(values * 1e3, form=".3f") for values in (script, methods)]
    interval = f"{low:.4f}–{high:.4f} (±{(high - low) / 2:.2%})"
    median = f"{np.median(script / methods):.4f} ({middle[0]:.4f}–{middle[1]:.4f})"
    size = f"{options.pairs} × {steps}"
    return [f"{options.workers}", size, *shown, f"{ratio:.4f}", interval, median]


def hook_cost(rounds: int) -> NDArray[np.float64]:
    """Microseconds that the measurement adds to an optimizer's step: (rounds,)."""
    options = argparse.Namespace(steps=HOOK_STEPS + WARMUP, batch=1, width=1)
    sweep = sweep_of(AS_SCRIPT, options, workers=1)
    task = task_of(sweep, candidates(sweep)[0].point)
    device = torch.device("cpu")
    context = become_rank(0, device, workload=sweep.workload, own_variables=[])
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def train(steps: int | None = None) -> None:
        for _ in itertools.count() if steps is None else range(steps):
            optimizer.step()

    def measured() -> float:
        loop = OwnLoop(task, context, StoreGroup(None, rank=0, workers=1))
        seconds = loop.run(train).of_part("step_s")
        return float(np.mean(seconds))

    def plain() -> float:
        train(WARMUP)
        began = time.perf_counter()
        train(HOOK_STEPS)
        return (time.perf_counter() - began) / HOOK_STEPS

    return np.array([measured() - plain() for _ in range(rounds)]) * 1e6


def main() -> None:
    """Compare the two and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_loop", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--pairs", type=int, default=30, help="(default 30)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a block (default 2)")
    parser.add_argument("--workers", type=int, default=2, help="(default 2)")
    parser.add_argument("--batch", type=int, default=8, help="samples of a worker (default 8)")
    parser.add_argument("--width", type=int, default=128, help="of the model (default 128)")
    parser.add_argument("--quick", action="store_true", help="4 pairs of blocks of 0.3 s")
    parser.add_argument("--blocks", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.blocks:
        be_a_rank(options)
        return
    if options.quick:
        options.pairs, options.seconds = 4, 0.3
    headers = ["workers", "pairs × steps", "script, ms a step", "three methods", "ratio"]
    cost = quartiles(hook_cost(rounds=10), form=".1f")
    print(
        heading("Does a script get the same step time as its model given by three methods?"),
        table([*headers, "95 % interval", "median ratio (95 %)"], [in_turns(options)]),
        f"Median (quartiles) of mean steps. The hooks add {cost} µs to a step.",
        sep="\n\n",
    )


if __name__ == "__main__":
    main()
