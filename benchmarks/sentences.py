"""Print what the report says of ten kinds of results, made up, and of results folders.

Run it in two checkouts to compare their words. Each answer stands as `dtsweep report` prints it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

import dtsweep
from dtsweep.analysis import Study
from dtsweep.report import content_of
from dtsweep.report.terminal import print_report
from dtsweep.sweep.goal import Goal, Question
from tests.frames import trials

Rows = list[dict[str, Any]]

RATES = {(1, 4): 240.0, (1, 16): 300.0, (2, 4): 350.0, (2, 16): 480.0, (2, 64): 500.0}
"""Samples per second of `ddp`, by workers and micro-batch."""

LADDER = {1: 872, 8: 6679, 16: 12828, 32: 23870, 64: 37000, 128: 21300}
"""A ladder of single rows, as a table of a paper has it."""

SHARES: dict[str, Any] = {"comm_share": 0.41, "comm_share_low": 0.38, "comm_share_high": 0.44}
SHARES |= {"exchange_share": 0.38, "exchange_share_low": 0.35, "exchange_share_high": 0.41}
SHARES |= {"wait_share": 0.03, "wait_share_low": 0.02, "wait_share_high": 0.04, "data_share": 0.02}
SHARES |= {"data_share_low": 0.01, "data_share_high": 0.03, "compute_share": 0.4}
WIDE = SHARES | {"exchange_share_low": 0.0, "exchange_share_high": 0.91, "comm_share_low": 0.0}
WIDE |= {"comm_share_high": 0.95, "data_share_high": 0.4, "backend": "gloo"}


def sweep(sigma: float, launches: int = 3, *, seed: int = 0, **fields: Any) -> Rows:
    """Trials of all points, whose launches differ by this standard deviation."""
    rng, rows = np.random.default_rng(seed), []
    for (workers, micro_batch), rate in RATES.items():
        for number in range(launches):
            measured = rate * float(np.exp(rng.normal(0, sigma)))
            step_s = workers * micro_batch / measured
            rows.append(
                {"point_id": f"{workers}x{micro_batch}{fields.get('sync', '')}", "workers": workers}
                | {"micro_batch": micro_batch, "global_batch": workers * micro_batch}
                | {"session": f"s{number}", "samples_per_s": measured, "step_p50_s": step_s}
                | {"samples_per_s_error": measured * sigma / 3, "step_mean_s": step_s}
                | {"step_p50_s_error": step_s * sigma / 3, "harness": "ray", "window_s": 2.0}
                | {"trial_s": 4.0, "overhead_s": 1.0, "startup_s": 8.0, "measured_steps": 60}
                | {"memory_peak_bytes": 4e8 + 1e6 * micro_batch, **SHARES, **fields}
            )
    return rows


def asked(launches: int, **question: Any) -> str:
    """Column of a sweep that asks for the highest throughput."""
    goal = question.pop("goal", Goal(maximize="samples_per_s"))
    return Question(goal=goal, max_launches=launches, **question).as_json()


def canaries(*steps_s: float) -> Rows:
    """Canaries of the first session."""
    watch = {"role": "canary", "point_id": "watch", "session": "s0", "half_width": 0.005}
    return [watch | {"step_mean_s": s, "started_at": at} for at, s in enumerate(steps_s)]


def made() -> dict[str, tuple[pd.DataFrame, str]]:
    """Trials of each kind of results, with a condition."""
    local: dict[str, Any] = {"semantics": "local", "sync": "local_sgd", "sync_period": 8}
    stale: dict[str, Any] = {
        "semantics": "stale",
        "sync": "parameter_server",
        "global_batch": None,
        "shards": 1,
    }
    failed: dict[str, Any] = {"status": "timeout", "reason": "2 steps in max_seconds=1; raise it"}
    failed |= dict.fromkeys(("samples_per_s", "step_p50_s", "step_mean_s", "step_p50_s_error"))
    lost = [row | failed | {"point_id": "t"} for row in sweep(0.01, launches=1, micro_batch=128)]
    table = {"harness": "imported", "sync": "own", "micro_batch": 32}
    ladder = [
        table | {"point_id": str(size), "workers": size, "samples_per_s": rate}
        for size, rate in [*LADDER.items(), (32, 23870 * 0.977)]
    ]
    open_8, costs = asked(8), asked(8, goal=Goal(minimize="usd_per_million_samples"))
    noisy = sweep(0.3, launches=8, **WIDE) + canaries(0.1, 0.2)
    modes = sweep(0.005) + sweep(0.005, seed=1, **local) + sweep(0.01, seed=2, **stale)
    return {
        "quiet": (trials(*sweep(0.003), question=open_8), ""),
        "noisy": (trials(*noisy, question=open_8), ""),
        "one launch": (trials(*sweep(0.01, launches=1)), ""),
        "limit": (trials(*sweep(0.02, seed=3)), "step_p50_s <= 130ms"),
        "semantics": (trials(*modes, question=open_8), ""),
        "failures": (trials(*sweep(0.01), *lost, question=open_8), ""),
        "imported ladder": (trials(*ladder), ""),
        "single candidate": (trials(*sweep(0.01)), "workers = 1 and micro_batch = 16"),
        "cost": (trials(*sweep(0.01, usd_per_hour=30.0), question=costs), ""),
        "undecided": (trials(*sweep(0.04, seed=5), question=open_8), ""),
    }


def main() -> None:
    """Print the words of each kind, then of each folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", help="results folders")
    results = made()
    for folder in parser.parse_args().results:
        results[folder] = (dtsweep.load(folder, canaries=True), "")
    for name, (frame, where) in results.items():
        console = Console(width=140, color_system=None)
        print(f"\n===== {name}")
        with console.capture() as words:
            print_report(content_of(Study(frame), where=where), console=console)
        print(words.get().split("\n\n")[0].strip())


if __name__ == "__main__":
    main()
