"""What does a trial cost beside its window, part by part?

Two ranks of torchrun run the points of a sweep one after the other, three times each, but for those of the parameter
server, which need Ray: what is done once per process falls on the first. A part's time is its own: what another part
does inside it counts there. Times are rank 0's. `--sweep benchmarks/tiny.py` is a workload that hardly trains.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from torch import distributed

from benchmarks.log_entry import ROOT, heading, quartiles, table, torchrun
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.task import task_of
from dtsweep.worker import after_window, attempt, timing
from dtsweep.worker.loop import Loop
from dtsweep.worker.rank import become_rank

WORKERS, TIMES = 2, 3

PARTS: dict[str, tuple[Any, str]] = {
    "matrix products (once per precision)": (attempt, "matmul_rates"),
    "rates of operations (once)": (attempt, "operation_rates"),
    "build": (attempt, "_build"),
    "… its check of the batch": (attempt, "check_batch"),
    "around the warm-up": (timing, "_warm_up"),
    "around the window": (timing, "_window"),
    "check of a late batch": (timing, "check_late_batch"),
    "check of gradients": (timing, "check_gradients"),
    "around blocks with and without the exchange": (after_window, "_take_turns"),
    "exchange alone": (after_window, "time_alone"),
    "counting FLOPs (once per workload)": (attempt, "count_flops"),
    "… operations of a step": (attempt, "_step_work"),
    "digest of the model": (attempt, "model_digest"),
    "cleaning up": (attempt, "release_memory"),
    "steps of warm-up, window, and blocks": (Loop, "run"),
}


LOOP_RUN = Loop.run


class Clocks:
    """Times functions, each without the others inside it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def around(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the work and notes its time under a name; that of `Loop.run` under its segment's."""

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
    """In a rank: run the points of a sweep file; give the seconds of each part, attempt by attempt."""
    distributed.init_process_group("gloo")
    sweep, _ = read_sweep(ROOT / file)
    context = become_rank(distributed.get_rank(), torch.device("cpu"), workload=sweep.workload, own_variables=())
    clocks = Clocks()
    for name, (module, function) in PARTS.items():
        setattr(module, function, clocks.around(name, getattr(module, function)))
    run_attempt = clocks.around("all else in a rank", attempt.run_attempt)
    possible = [c.point for c in candidates(sweep) if c.reason is None and c.point.workers == WORKERS]
    found = list[dict[str, Any]]()
    for point in [point for point in possible if point.sync != "parameter_server"]:
        for _ in range(TIMES):
            tasks = [task_of(sweep, point)]
            distributed.broadcast_object_list(tasks, src=0)
            clocks.spent.clear()
            ended = run_attempt(context, tasks[0])
            assert ended.status == "ok", ended.reason
            found.append({"point": f"{point.sync} {point.micro_batch} × {point.accumulation}", **clocks.spent})
            if len(found) == 1:
                # As in a session.
                gc.freeze()
    distributed.destroy_process_group()
    return found


def main() -> None:
    """Print an entry for docs/log.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweep", default="sweeps/batchsize.py", help="a sweep file, from the repository")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        found = ranks(options.sweep)
        print(json.dumps(found) if int(os.environ["RANK"]) == 0 else "", end="")
        return
    frame = pd.DataFrame(
        json.loads(torchrun("benchmarks.parts", "--rank", "--sweep", options.sweep, workers=WORKERS))
    ).fillna(0.0)
    numbers = frame.drop(columns="point")
    later = numbers.iloc[1:]
    rows = [
        [name, f"{numbers[name].iloc[0] * 1e3:.0f}", quartiles(later[name] * 1e3, form=".0f")]
        for name in later.mean().sort_values(ascending=False).index
    ]
    print(heading("What does a trial cost beside its window?"), "", sep="\n")
    print(table([f"part of {len(frame)} trials", "first, ms", "median (quartiles) of the others, ms"], rows))


if __name__ == "__main__":
    main()
