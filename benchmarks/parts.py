"""What does a trial cost beside its window, part by part?

Two ranks of torchrun run points of the README's sweep one after the other, each twice: what is done once per process
falls on the first. A part's time is its own: what is done inside another part counts there. Times are rank 0's.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.log_entry import ROOT, heading, quartiles, table, torchrun
from dtsweep.metrics import product
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from dtsweep.worker import after_window, attempt, loop, timing
from dtsweep.worker.rank import become_rank

PARTS: dict[str, tuple[Any, str]] = {
    "matrix products (once per precision)": (attempt, "matmul_rates"),
    "build": (attempt, "_build"),
    "… its check of the batch": (attempt, "check_batch"),
    "warm-up": (timing, "_warm_up"),
    "window, around its loop": (timing, "_window"),
    "check of a late batch": (timing, "check_late_batch"),
    "check of gradients": (timing, "check_gradients"),
    "around blocks with and without the exchange": (after_window, "_take_turns"),
    "exchange alone": (after_window, "time_alone"),
    "counting FLOPs (once per workload)": (attempt, "count_flops"),
    "digest of the model": (attempt, "model_digest"),
    "cleaning up": (attempt, "release_memory"),
}


class Clocks:
    """Times functions, each without the others inside it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def around(self, name: str | Callable[..., str], work: Callable[..., Any]) -> Callable[..., Any]:
        """A function that does the work and notes its time under a name, or one that its arguments give."""

        def run(*arguments: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                whole = time.perf_counter() - began
                self.spent[name if isinstance(name, str) else name(*arguments, **named)] += whole - self._inner.pop()
                self._inner[-1] += whole

        return run


def parts_of(point_settings: dict[str, Any]) -> list[dict[str, float]]:
    raise NotImplementedError


def ranks() -> None:
    """In a rank: run the points and print each attempt's parts."""
    distributed.init_process_group("gloo")
    sweep, _ = read_sweep(ROOT / "sweeps" / "batchsize.py")
    context = become_rank(distributed.get_rank(), torch.device("cpu"), workload=sweep.workload, own_variables=())
    clocks = Clocks()
    for name, (module, function) in PARTS.items():
        setattr(module, function, clocks.around(name, getattr(module, function)))
    segment = lambda self, name, *_, **__: {"window": "WINDOW", "warmup": "warm-up"}.get(name, "BLOCKS")
    loop.Loop.run = clocks.around(segment, loop.Loop.run)
    run_attempt = clocks.around("all else in a rank", attempt.run_attempt)
    found = []
    points = [c.point for c in candidates(sweep) if c.reason is None and c.point.workers == 2]
    for point in [point for point in points if point.sync != "parameter_server"]:
        for again in range(2):
            tasks = [task_of(sweep, point)]
            distributed.broadcast_object_list(tasks, src=0)
            clocks.spent.clear()
            ended = run_attempt(context, tasks[0])
            assert ended.status == "ok", ended.reason
            found.append({"point": f"{point.sync} {point.micro_batch}x{point.accumulation}", "again": again, **clocks.spent})
    distributed.destroy_process_group()
    if int(os.environ["RANK"]) == 0:
        print(json.dumps(found), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().ranks:
        return ranks()
    found = json.loads(torchrun("benchmarks.parts", "--ranks", workers=2))
    import pandas as pd
    frame = pd.DataFrame(found).set_index(["point", "again"]).fillna(0.0)
    pd.set_option("display.width", 250, "display.max_columns", 30, "display.max_rows", 100)
    print((frame * 1e3).round(0).T.to_string())
    print((frame.mean() * 1e3).round(1).to_string())


if __name__ == "__main__":
    main()
