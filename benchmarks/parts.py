"""What does a trial cost next to its window, part by part, on rank 0 and in the driver?

A first table is of trials in a session, as a user runs them: what rank 0 says of its parts
(`build_s`, `warmup_s`, `after_window_s`, `cleanup_s` of `ranks`), what its slot takes around it,
and what the driver takes around that. A second one takes the rank apart: two ranks of torchrun run
the points of a sweep one after the other, but for those of the parameter server, which need Ray.
There a part's time is its own: what another part does inside it counts there. What is done once per
process or session falls on the first trial.

`--sweep benchmarks/tiny.py`, the default, is a workload that hardly trains.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import distributed

from benchmarks.log_entry import ROOT, heading, quartiles, run, settings, table, torchrun
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.task import task_of
from dtsweep.worker import after_window, attempt, exchange_cost, timing
from dtsweep.worker.loop import Loop
from dtsweep.worker.rank import become_rank

WORKERS, TIMES = 2, 3

TRIALS = 40
"""Trials in the session, which differ in the learning rate alone."""

PARTS: dict[str, tuple[Any, str]] = {
    "matrix products (once per precision)": (attempt, "matmul_rates"),
    "rates of operations (once)": (attempt, "operation_rates"),
    "build": (attempt, "_build"),
    "… its check of the batch": (attempt, "check_batch"),
    "around the warm-up": (timing, "_warm_up"),
    "around the window": (timing, "_window"),
    "check of a late batch": (after_window, "check_late_batch"),
    "step for traffic and gradients": (after_window, "inspect_step"),
    "step for the error of a compression": (after_window, "compression_error"),
    "around steps without the exchange": (after_window, "time_exchange"),
    "exchange alone (once)": (exchange_cost, "time_alone"),
    "counting FLOPs (once per workload)": (attempt, "count_flops"),
    "… operations of a step": (attempt, "_step_work"),
    "digest of the model": (attempt, "model_digest"),
    "cleaning up": (attempt, "release_memory"),
    "steps of warm-up, window, and turns": (Loop, "run"),
}


LOOP_RUN = Loop.run


class Clocks:
    """Times functions, each without the others inside it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the work and notes its time under a name.

        Time of `Loop.run` counts under its segment's name.
        """

        def run(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                whole = time.perf_counter() - began
                part = f"steps: {arguments[1]}" if work is LOOP_RUN else name
                self.spent[part] += whole - self._inner.pop()
                self._inner[-1] += whole

        return run


def ranks(file: str) -> list[dict[str, Any]]:
    """In a rank: run the points of a sweep file; return the seconds of each part by attempt."""
    distributed.init_process_group("gloo")
    sweep, _ = read_sweep(ROOT / file)
    context = become_rank(
        distributed.get_rank(), torch.device("cpu"), workload=sweep.workload, own_variables=()
    )
    clocks = Clocks()
    for name, (module, function) in PARTS.items():
        setattr(module, function, clocks.around(name, getattr(module, function)))
    run_attempt = clocks.around("all else in a rank", attempt.run_attempt)
    possible = [
        c.point for c in candidates(sweep) if c.reason is None and c.point.workers == WORKERS
    ]
    found = list[dict[str, Any]]()
    for point in [point for point in possible if point.sync != "parameter_server"]:
        for _ in range(TIMES if len(possible) > 1 else TRIALS):
            tasks = [task_of(sweep, point)]
            distributed.broadcast_object_list(tasks, src=0)
            clocks.spent.clear()
            ended = run_attempt(context, tasks[0])
            assert ended.status == "ok", ended.reason
            found.append(
                {
                    "point": f"{point.sync} {point.micro_batch} × {point.accumulation}",
                    **clocks.spent,
                }
            )
            if len(found) == 1:
                # As in a session.
                gc.freeze()
    distributed.destroy_process_group()
    return found


def in_a_session(file: str) -> list[list[str]]:
    """Run a sweep file's first point in one session, at many learning rates.

    The table has a row for each part.
    """
    sweep, _ = read_sweep(ROOT / file)
    axes = {
        name: values[:1] if isinstance(values, list) else values
        for name, values in sweep.axes.items()
    }
    rates: list[float | int | str | None] = [1e-3 + index * 1e-6 for index in range(TRIALS)]
    with tempfile.TemporaryDirectory(prefix="dtsweep-parts-") as folder:
        sweep = replace(sweep, axes={**axes, "workers": [WORKERS], "learning_rate": rates})
        rows = run(sweep, folder)
        own = Results(folder).table("ranks").to_pandas()
    names = ["build_s", "warmup_s", "window_s", "after_window_s", "cleanup_s"]
    # `window_s` as it was timed: that of a trial is without the warm-up that was found in it.
    first = own.loc[own["rank"] == 0, ["attempt_id", *names]]
    trials = rows[rows["role"] == "trial"].drop(columns="window_s").merge(first, on="attempt_id")
    trials = trials.sort_values("started_at")
    starts = trials["started_at"].to_numpy(dtype="datetime64[us]")
    until_next = np.append(np.diff(starts) / np.timedelta64(1, "s"), np.nan)
    on_rank = trials[names]
    parts = {
        "build: model, first batches, the mode": on_rank["build_s"],
        "warm-up, with what leads to it and to the window": on_rank["warmup_s"],
        "**window**": on_rank["window_s"],
        "after the window: checks, counts, steps without the exchange": on_rank["after_window_s"],
        "cleaning up": on_rank["cleanup_s"],
        "hand-over to the ranks and their replies": trials["trial_s"] - on_rank.sum(axis=1),
        "the driver until it has the result": trials["overhead_s"],
        "the driver: making and storing rows, next trial": until_next
        - trials["trial_s"]
        - trials["overhead_s"],
        "all but the window": until_next - on_rank["window_s"],
    }
    return [
        [
            name,
            f"{seconds.iloc[0] * 1e3:.0f}",
            quartiles(seconds.iloc[1:].dropna() * 1e3, form=".1f"),
        ]
        for name, seconds in parts.items()
    ]


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sweep", default="benchmarks/tiny.py", help="a sweep file, from the repository"
    )
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        found = ranks(options.sweep)
        print(json.dumps(found) if int(os.environ["RANK"]) == 0 else "", end="")
        return
    print(heading("What does a trial cost next to its window?"), end="\n\n")
    print(settings(read_sweep(ROOT / options.sweep)[0].measure), end="\n\n")
    headers = ["first, ms", "median (quartiles) of the others, ms"]
    print(
        table([f"part of {TRIALS} trials in a session", *headers], in_a_session(options.sweep)),
        end="\n\n",
    )
    sent = torchrun("benchmarks.parts", "--rank", "--sweep", options.sweep, workers=WORKERS)
    frame = pd.DataFrame(json.loads(sent)).fillna(0.0)
    numbers = frame.drop(columns="point")
    later = numbers.iloc[1:]
    rows = [
        [name, f"{numbers[name].iloc[0] * 1e3:.0f}", quartiles(later[name] * 1e3, form=".1f")]
        for name in later.mean().sort_values(ascending=False).index
    ]
    print(table([f"part of {len(frame)} trials on rank 0 of torchrun", *headers], rows))


if __name__ == "__main__":
    main()
