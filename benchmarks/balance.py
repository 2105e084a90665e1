"""What does balancing win back of what a slow worker costs? Its share of the bound by arithmetic.

Two workers, each on a core of its own, of which the second has passes of `FACTOR` times the length.
A launch under torchrun measures equal shares, `static` and `dynamic`, and equal shares of half the
micro-batch, every second launch in the other order. With equal shares a step takes T. The bound is

    T₀ = T · 2 ÷ (1 + FACTOR)

if all of the step is linear in the samples. The share won back is (T − T balanced) ÷ (T − T₀). Its
interval is Student's over launches. Not all of a step is linear: from the passes P of whole and
half micro-batches follow the fixed part of the slow worker's pass, 2 P(half) − P, and what a step
takes beyond its passes, T − P. The second bound leaves both as they are, and deals the rest out by
continuous shares.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import distributed

from benchmarks.log_entry import heading, settings, table, torchrun
from dtsweep import Measure, Sweep, workloads
from dtsweep.measure.statistics import students_t
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import RankContext, become_rank, take_device

WORKERS, FACTOR, BATCH = 2, 2.0, 24
WORKLOAD = workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc")
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "equal": {"micro_batch": BATCH},
    "static": {"micro_batch": BATCH, "balance": "static"},
    "dynamic": {"micro_batch": BATCH, "balance": "dynamic"},
    "half": {"micro_batch": BATCH // 2},
}
KEPT = ("status", "reason", "step_mean_s", "pass_s", "flags")


def be_a_rank(variants: Sequence[str], seconds: float) -> None:
    """Measure variants on a core of this rank's own; rank 0 prints a row as JSON of each."""
    index = int(os.environ["LOCAL_RANK"])
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) >= WORKERS, f"{WORKERS} workers need a core each; there are {len(cores)}"
    os.sched_setaffinity(0, {cores[index]})
    device = take_device(Sweep(workload=WORKLOAD, axes={}).resources, index=index)
    distributed.init_process_group("gloo")
    context = become_rank(index, device, workload=WORKLOAD, own_variables=["OMP_NUM_THREADS"])
    for name in variants:
        row = measured(context, name, measure_of(seconds))
        if index == 0:
            print(json.dumps({"variant": name, **row}), flush=True)
            print(f"{name}: {row['step_mean_s'] * 1e3:.1f} ms, {row['shares']}", file=sys.stderr)
    distributed.destroy_process_group()


def measure_of(seconds: float) -> Measure:
    """Windows as long as each other."""
    # A dynamic window may be measured again.
    return Measure(repeats=1, min_seconds=seconds, max_seconds=3 * seconds, half_width=0.5)


def measured(context: RankContext, name: str, measure: Measure) -> dict[str, Any]:
    """Columns of a variant's trial, and the shares of its workers."""
    axes = {"workers": WORKERS, "slow_rank": FACTOR, **VARIANTS[name]}
    sweep = Sweep(
        workload=WORKLOAD, axes={key: [value] for key, value in axes.items()}, measure=measure
    )
    (candidate,) = candidates(sweep)
    assert candidate.reason is None, candidate.reason
    # The attempt's name is drawn: all ranks take rank 0's.
    tasks = [task_of(sweep, candidate.point)]
    distributed.broadcast_object_list(tasks, src=0)
    result = run_attempt(replace(context, exchanges={}), tasks[0])
    assert result.measured is not None, f"{name} failed on this rank; its traceback is above"
    everyone: list[Any] = [None] * WORKERS
    distributed.all_gather_object(everyone, (context.facts, result))
    facts = {rank: own for rank, (own, _) in enumerate(everyone)}
    results = {rank: own for rank, (_, own) in enumerate(everyone)}
    marked = with_warmup_marked(candidate.point, results)
    row = trial_row(sweep, candidate.point, tasks[0], facts, marked, harness="torchrun")
    shares = [own.measured.samples_per_pass for own in results.values()]
    return {**{column: row.get(column) for column in KEPT}, "shares": shares}


def bounds(equal: Mapping[str, Any], half: Mapping[str, Any]) -> tuple[float, float]:
    """Shortest step by arithmetic, in seconds: if all of it is linear, and with its fixed parts.

    >>> half = {"step_mean_s": 1.25, "pass_s": 1.0}
    >>> bounds({"step_mean_s": 2.25, "pass_s": 2.0}, half)
    (1.5, 1.5833333333333333)
    """
    step_s, pass_s = equal["step_mean_s"], equal["pass_s"]
    fixed_s = max(0.0, 2 * half["pass_s"] - pass_s)
    # Both workers end at once: of 2 B samples the slow one has s.
    # fixed + s · slope = (fixed + (2 B − s) · slope) ÷ FACTOR, in the slow one's times.
    sample_s = (pass_s - fixed_s) / BATCH
    samples = (2 * BATCH - (FACTOR - 1) * fixed_s / sample_s) / (1 + FACTOR)
    balanced_s = fixed_s + max(samples, 0.0) * sample_s
    return step_s * 2 / (1 + FACTOR), step_s - pass_s + balanced_s


def with_interval(values: Sequence[float]) -> str:
    """Mean of launches in percent, with half of its 95 % interval."""
    half = float(students_t(len(values) - 1)) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values) * 100:.0f} ± {half * 100:.0f} %"


def print_entry(launches: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Print an entry for docs/log/."""
    print(heading("What does balancing win back of what a slow worker costs?"), end="\n\n")
    limits = [bounds(launch["equal"], launch["half"]) for launch in launches]
    rows = []
    for name in ("equal", "static", "dynamic"):
        steps_s = [launch[name]["step_mean_s"] for launch in launches]
        cells = [name, f"{np.mean(steps_s) * 1e3:.1f}"]
        cells.append(", ".join(dict.fromkeys(str(launch[name]["shares"]) for launch in launches)))
        for index in range(2):
            won = [
                (launch["equal"]["step_mean_s"] - step_s)
                / (launch["equal"]["step_mean_s"] - limit[index])
                for launch, step_s, limit in zip(launches, steps_s, limits, strict=True)
            ]
            cells.append("" if name == "equal" else with_interval(won))
        rows.append(cells)
    linear, fixed = np.mean(limits, axis=0) * 1e3
    rows.append(["bound, all linear", f"{linear:.1f}", "", "", ""])
    rows.append(["bound, with fixed parts", f"{fixed:.1f}", "", "", ""])
    print(table(["", "step, ms", "samples per pass", "won back", "of the second bound"], rows))
    words = f"{len(launches)} launches, slow_rank={FACTOR:g}, micro_batch={BATCH}"
    print(f"\n{words}. {settings(measure_of(seconds))}")


def main() -> None:
    """Run all launches, or be a rank of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=5, help="at least 2 give an interval")
    parser.add_argument("--seconds", type=float, default=5.0, help="least length of a window")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variants:
        be_a_rank(options.variants, options.seconds)
        return
    launches = []
    for launch in range(options.launches):
        order = list(VARIANTS)[:: 1 if launch % 2 == 0 else -1]
        words = ["--seconds", str(options.seconds), "--variants", *order]
        said = torchrun("benchmarks.balance", *words, workers=WORKERS)
        rows = map(json.loads, said.splitlines())
        launches.append({row["variant"]: row for row in rows})
    print_entry(launches, options.seconds)


if __name__ == "__main__":
    main()
