"""CPU time of `dtsweep report`, after imports, by part: 50 trials, and 1,600 of about 800 points.

The trials are those of a results folder, repeated with other learning rates and launches. The
measured values of each copy are multiplied by one factor per launch and one per point, both of
about 1 %.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from itertools import pairwise
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
SIZES = {50: 1, 1_600: 2}
"""Numbers of trials, each with the launches of a point."""
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


def cpu_seconds(frame: pd.DataFrame) -> dict[str, float]:
    """CPU time of the parts of the report of a frame."""
    console = Console(file=io.StringIO(), width=140)
    times = [time.process_time()]
    content = content_of(frame)
    times.append(time.process_time())
    print_report(content, console=console)
    times.append(time.process_time())
    report_json(content)
    times.append(time.process_time())
    parts = ("content", "terminal", "JSON")
    return {part: end - began for part, (began, end) in zip(parts, pairwise(times), strict=True)}


def main() -> None:
    """Print an entry of the log for the results of the first argument."""
    trials = dtsweep.load(sys.argv[1], canaries=True)
    cpu_seconds(trials)
    print(log_entry.heading("CPU time of a report, after imports"))
    for size, launches in SIZES.items():
        frame = copies_of(trials, count=size, launches=launches)
        runs = [cpu_seconds(frame) for _ in range(RUNS)]
        medians = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
        parts = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in medians.items())
        points = frame["point_id"].nunique()
        total = sum(medians.values())
        print(f"  - {size:,} trials of {points:,} points: {total:.2f} s of CPU time ({parts})")


if __name__ == "__main__":
    main()
