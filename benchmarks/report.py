"""CPU time of `dtsweep report`, after imports, for 36 and for 3,000 trials.

The trials are those of a results folder, repeated with other learning rates and launches. The
measured values of each copy are multiplied by one factor per launch and one per point, both of
about 1 %.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

import dtsweep
from benchmarks import log_entry
from dtsweep.report.as_json import report_json
from dtsweep.report.content import content_of
from dtsweep.report.terminal import print_report

if TYPE_CHECKING:
    import pandas as pd

RATES = ("samples_per_s", "tokens_per_s")
TIMES = ("latency_s", "step_mean_s", "step_p50_s", "step_p95_s", "step_p99_s")
SIZES = (36, 3_000)
RUNS = 5


def copies_of(trials: pd.DataFrame, *, count: int, launches: int = 3) -> pd.DataFrame:
    """Make a frame of so many trials.

    Args:
        trials: of a results folder, one per point, with canaries.
        count: of the rows wanted.
        launches: of each copied point.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    parts: list[pd.DataFrame] = []
    copies = -(-count // (len(trials) * launches))
    for copy in range(copies):
        of_point = np.exp(rng.normal(0, 0.01, len(trials)))
        for launch in range(launches):
            factor = of_point * np.exp(rng.normal(0, 0.01))
            part = trials.assign(
                learning_rate=trials["learning_rate"] * (1 + copy / 1000),
                point_id=trials["point_id"] + f"-{copy}",
                trial_id=trials["trial_id"] + f"-{copy}-{launch}",
                attempt_id=trials["attempt_id"] + f"-{copy}-{launch}",
                session=trials["session"] + f"-{launch}",
                repeat=launch + 1,
            )
            for name in (*RATES, *TIMES):
                scale = factor if name in RATES else 1 / factor
                for end in ("", "_low", "_high", "_error"):
                    if f"{name}{end}" in part:
                        part[f"{name}{end}"] *= scale
            parts.append(part)
    return pd.concat(parts, ignore_index=True).head(count)


def cpu_seconds(frame: pd.DataFrame) -> float:
    """CPU time of the report of a frame, as terminal text and as JSON values."""
    console = Console(file=io.StringIO(), width=140)
    began = time.process_time()
    content = content_of(frame)
    print_report(content, console=console)
    report_json(content)
    return time.process_time() - began


def main() -> None:
    """Print an entry of the log for the results of the first argument."""
    results = Path(sys.argv[1])
    frame = dtsweep.load(results, canaries=True)
    cpu_seconds(frame)
    frames = {SIZES[0]: frame, SIZES[1]: copies_of(frame, count=SIZES[1])}
    print(log_entry.heading("CPU time of a report, after imports"))
    for size, rows in frames.items():
        seconds = [cpu_seconds(rows) for _ in range(RUNS)]
        each = ", ".join(f"{value:.2f}" for value in seconds)
        print(f"  - {size:,} trials: {statistics.median(seconds):.2f} s of CPU time (runs: {each})")


if __name__ == "__main__":
    main()
