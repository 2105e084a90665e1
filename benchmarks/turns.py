"""What do turns win? Ratios of points that two ranks measure in turn, quiet and next to a load.

First the error of a ratio: one session of many cycles of three points of a small DDP model, from
which windows of 5, 10 and 20 turns are taken. Separate windows compare each point with the next
window of another one, as sweeps without turns do; in turn the cycles of one window are compared.

Then verdicts of `difference` over launches: one point under two names (they differ in the learning
rate, which takes no time), and points that sleep for 5 and 10 % of each step. All of them take
turns in each launch. The load is a process that uses one core half of the time, in bursts of
seconds.

It uses the ranks of the tests, which are started without Ray.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.log_entry import heading, table
from dtsweep import Measure, Sweep, workloads
from dtsweep.analysis import difference
from dtsweep.measure.cycles import effects_of
from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.results.frames import trials_of_rows
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sweep.values import column_types
from dtsweep.worker.rank import become_rank
from tests.ranks import results_of


@dataclass(frozen=True)
class Sleepy(workloads.Gpt):
    """Sleeps before each pass for a share of the time since the last one, the sleep left out."""

    share: float = 0.0

    def loss(self, model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Sleep, then give the loss of a batch."""
        now = time.perf_counter()
        since = now - _passes.get(id(model), now)
        # After a turn of another model.
        if since < _LONGEST_STEP_S:
            time.sleep(self.share * since)
        _passes[id(model)] = time.perf_counter()
        return super().loss(model, batch)


_passes: dict[int, float] = {}
"""When the last pass of each model began, behind its sleep."""

_LONGEST_STEP_S = 0.15
"""Below a turn, and above a step."""

MODEL = Sleepy(layers=1, width=64, sequence=16)
USUAL: Mapping[str, Any] = {"workers": 2, "micro_batch": 64, "workload": MODEL}

THREE: Mapping[str, dict[str, Any]] = {
    "A": {"micro_batch": 16, "accumulation": 4},
    "B": {},
    "C": {"micro_batch": 16},
}
"""Points of the first table."""

NAMES: Mapping[str, dict[str, Any]] = {
    "first": {},
    "same": {"learning_rate": 0.02},
    "5 % more time": {"workload": replace(MODEL, share=0.05)},
    "10 % more time": {"workload": replace(MODEL, share=0.1)},
}
"""Points of the second table: each is compared with the first."""

_BURSTS = """
import random, sys, time
drawn = random.Random(int(sys.argv[1]))
while True:
    until = time.monotonic() + drawn.uniform(1, 5)
    while time.monotonic() < until:
        pass
    time.sleep(drawn.uniform(1, 5))
"""


@contextmanager
def load(*, is_on: bool) -> Iterator[None]:
    """Have another process use one core half of the time, in bursts of seconds."""
    if not is_on:
        yield
        return
    seed = str(random.randrange(2**31))
    with subprocess.Popen([sys.executable, "-c", _BURSTS, seed]) as process:
        try:
            yield
        finally:
            process.kill()


def session(
    points: Mapping[str, dict[str, Any]], measure: Measure, *, repeat: int = 1
) -> dict[str, dict[str, Any]]:
    """Rows of `trials` of these points, by name, measured in turn on two new processes."""
    asked = {name: Point(**{**USUAL, **fields}) for name, fields in points.items()}
    sweep = Sweep(workload=MODEL, axes={"workers": [2]}, measure=measure)
    tasks = [
        replace(task_of(sweep, point, repeat=repeat, measure=measure), known_peak_bytes=0)
        for point in asked.values()
    ]
    first, *others = tasks
    sent = results_of(_be_rank, replace(first, in_turn=others), workers=2)
    facts = {rank: facts for rank, (facts, _) in enumerate(sent)}
    rows = {}
    for number, (name, point) in enumerate(asked.items()):
        results = {rank: [result, *result.in_turn][number] for rank, (_, result) in enumerate(sent)}
        marked = with_warmup_marked(point, results)
        rows[name] = trial_row(sweep, point, tasks[number], facts, marked)
        rows[name] |= {"turn_group": first.attempt_id, "session": first.attempt_id}
    return rows


def _be_rank(rank: int, task: Task) -> tuple[RankFacts, RankResult]:
    context = become_rank(rank, torch.device("cpu"), workload=MODEL, own_variables=())
    return context.facts, run_attempt(context, task)


def _rates(row: Mapping[str, Any]) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(row["turn_samples_per_s"])
    return logs


def errors(seconds: float) -> list[list[str]]:
    """Standard deviations of the logarithm of the ratio of two points, by turns of a window."""
    measure = Measure(half_width=0.005, max_steps=10**6, max_seconds=seconds)
    logs = np.array([_rates(row) for row in session(THREE, measure).values()])
    pairs = ((0, 1), (1, 2), (2, 0))
    rows = []
    for count in (5, 10, 20):
        windows = logs.shape[1] // count
        if windows < 3:
            break
        parts = np.split(logs[:, : windows * count], windows, axis=1)
        means = np.array([part.mean(axis=1) for part in parts])
        levels = np.array([effects_of(part).levels for part in parts])
        separate = [means[:-1, i] - means[1:, j] for i, j in pairs]
        in_turn = [[of[:, i] - of[:, j] for i, j in pairs] for of in (means, levels)]
        spreads = [np.mean([one.std(ddof=1) for one in kind]) for kind in (separate, *in_turn)]
        rows.append([f"{count} turns", *(f"± {spread:.1%}" for spread in spreads)])
    return rows


def verdicts(runs: int, *, launches: int, seconds: float) -> list[list[str]]:
    """How often each name differs from the first one, over runs of so many launches.

    A run has the launches of the one before it but the first, and another.
    """
    measure = Measure(half_width=0.01, min_seconds=1, max_steps=10**6, max_seconds=seconds)
    counts = {name: Counter[str]() for name in NAMES}
    ratios: dict[str, list[float]] = {name: [] for name in NAMES}
    sessions = [
        [*session(NAMES, measure, repeat=repeat).values()] for repeat in range(runs + launches - 1)
    ]
    for run in range(runs):
        rows = [row for members in sessions[run : run + launches] for row in members]
        frame = trials_of_rows(
            [
                {"role": "trial", "repeat": 1, "row_number": at, **row}
                for at, row in enumerate(rows)
            ],
            workload_types=column_types(MODEL),
        )
        points = [row["point_id"] for row in rows[: len(NAMES)]]
        for name, point in zip(NAMES, points, strict=True):
            if point != points[0]:
                found = difference(frame, point, points[0], of="samples_per_s").iloc[0]
                counts[name][str(found["verdict"])] += 1
                ratios[name].append(float(found["ratio"]))
    cells = []
    for name, count in counts.items():
        if count:
            told = [str(count[verdict]) for verdict in ("faster", "slower", "equal", "undecided")]
            mean, spread = np.mean(ratios[name]) - 1, np.std(ratios[name])
            cells.append([name, *told, f"{mean:+.1%} ± {spread:.1%}"])
    return cells


def main() -> None:
    """Print both tables as an entry of docs/log/."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="of each point of the first table"
    )
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--launches", type=int, default=2)
    parser.add_argument(
        "--window", type=float, default=3.0, help="longest window of a launch, in s"
    )
    parser.add_argument("--busy", action="store_true", help="next to a load that comes and goes")
    asked = parser.parse_args()
    began = time.monotonic()
    with load(is_on=asked.busy):
        print(heading(f"What do turns win {'next to a load' if asked.busy else 'on quiet cores'}?"))
        if asked.seconds:
            heads = ["window", "separate windows", "in turn, mean", "in turn, trimmed"]
            print(table(heads, errors(asked.seconds)))
        if asked.runs:
            heads = [
                "against the first",
                "faster",
                "slower",
                "equal",
                "undecided",
                "ratio, mean ± sd",
            ]
            rows = verdicts(asked.runs, launches=asked.launches, seconds=asked.window)
            print(table(heads, rows))
    print(f"\n{asked.runs} runs of {asked.launches} launches, {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
