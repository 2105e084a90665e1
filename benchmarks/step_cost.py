"""Cost of dtsweep's own code per step: two source trees next to each other, in turns A B B A.

    python benchmarks/step_cost.py BASE NEW --rounds 10

BASE and NEW are folders of dtsweep's sources, such as two clones. Each turn is a process of its own
per rank, which runs the timed loop on a small model. What is compared is the mean step of a turn;
a round gives one ratio, and the interval is over rounds.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

STEPS, WARMUP = 1500, 200
MODES = {"ddp": 1, "ring": 1, "local_sgd": 1, "ddp, 2 ranks": 2}
"""Modes, and the ranks of each."""


def run_rank(mode: str, rank: int, workers: int, store: str) -> float:
    """Run the timed loop of one rank; return the mean step in seconds."""
    from dataclasses import dataclass

    import torch
    from torch import distributed, nn

    from dtsweep.sweep.point import Point
    from dtsweep.sync.mode import Job, load_mode
    from dtsweep.sync.passes import loss_in_precision, make_optimizer
    from dtsweep.worker.loop import ModeLoop

    @dataclass(frozen=True)
    class Small:
        """A model whose step takes a tenth of a millisecond."""

        def build(self) -> nn.Module:
            return nn.Linear(8, 8)

        def batch(self, samples: range, device: torch.device) -> torch.Tensor:
            return torch.full((len(samples), 8), float(samples.start % 7), device=device)

        def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
            mean: torch.Tensor = model(batch).square().mean()
            return mean

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=workers
    )
    device = torch.device("cpu")
    point = Point(workers=workers, micro_batch=4, sync=mode, workload=Small())
    job = Job(point=point, rank=rank, device=device, loss=loss_in_precision(point, device))
    trained = load_mode(point.mode)(job)
    trained.prepare(Small().build(), functools.partial(make_optimizer, point=point))
    loop = ModeLoop(job, trained)
    loop.run("warmup", range(WARMUP))
    gc.collect()
    gc.disable()
    seconds = loop.run("window", range(STEPS))
    distributed.destroy_process_group()
    return seconds / STEPS


def turn(tree: Path, name: str) -> float:
    """Mean step of a turn of one tree, on its slowest rank, in seconds."""
    workers = MODES[name]
    with TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", name, str(rank), f"{folder}/store"],
                env={**os.environ, "PYTHONPATH": str(tree)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(workers)
        ]
        return max(float(json.loads(rank.communicate()[0])) for rank in ranks)


def compare(base: Path, new: Path, *, rounds: int) -> None:
    """Print the ratio of NEW to BASE for each mode, with its 95 % interval."""
    import numpy as np
    from scipy import stats

    print(f"{'mode':16} {'base µs':>9} {'new µs':>9} {'ratio':>7} {'95 % interval':>18}")
    for name in MODES:
        pairs = []
        for _ in range(rounds):
            first, second, third, fourth = (turn(tree, name) for tree in (base, new, new, base))
            pairs.append(((first + fourth) / 2, (second + third) / 2))
        times = np.array(pairs)
        logs = np.log(times[:, 1] / times[:, 0])
        half = stats.t.ppf(0.975, rounds - 1) * logs.std(ddof=1) / np.sqrt(rounds)
        low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half])
        base_us, new_us = np.median(times, axis=0) * 1e6
        print(f"{name:16} {base_us:9.1f} {new_us:9.1f} {middle:7.4f} {low:8.4f} to {high:.4f}")


def main() -> None:
    """Run a rank, or compare two trees."""
    if sys.argv[1] == "--rank":
        _, _, name, rank, store = sys.argv
        step_s = run_rank(name.partition(",")[0], int(rank), MODES[name], store)
        print(json.dumps(step_s))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    compare(given.base, given.new, rounds=given.rounds)


if __name__ == "__main__":
    main()
