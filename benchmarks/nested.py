"""Is a smaller world inside a larger one's session measured as in a launch of its own, and what does it save?

A pair is two runs of the same points of one worker on a private Ray: behind those of two workers in their session, of
which one process is idle then, and alone in a launch of their own; which of the two comes first takes turns. A pair
gives the mean logarithm of the points' ratios of samples per second; the interval of the ratio is Student's t over
pairs. A launch adds what all its points share, so points are no further evidence of each other.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.log_entry import heading, quartiles, run, table
from dtsweep import Measure, Sweep, workloads
from dtsweep.measure.statistics import students_t

MEASURE = Measure(half_width=0.01, min_seconds=2, max_seconds=6, canary=False)
MICRO_BATCHES = [2, 4, 8]


def measured(workers: list[int], folder: Path) -> pd.DataFrame:
    """Run the points; return those of one worker."""
    workload = workloads.Gpt(layers=2, width=128, sequence=64)
    axes = {"workers": workers, "micro_batch": MICRO_BATCHES}
    frame = run(Sweep(workload=workload, axes=axes, measure=MEASURE), str(folder))
    return frame[frame["workers"] == 1].set_index("micro_batch").sort_index()


def main() -> None:
    """Run the pairs and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=14)
    pairs = parser.parse_args().pairs
    logarithms, starts, by_point = [], [], []
    for pair in range(pairs):
        found: dict[str, pd.DataFrame] = {}
        cases = {"nested": [2, 1], "own": [1]}
        for case in sorted(cases, reverse=bool(pair % 2)):
            with tempfile.TemporaryDirectory() as folder:
                found[case] = measured(cases[case], Path(folder, "r"))
        ratios = np.log((found["nested"]["samples_per_s"] / found["own"]["samples_per_s"]).to_numpy("float64"))
        by_point.append(ratios)
        logarithms.append(float(ratios.mean()))
        starts.append(float(found["own"]["startup_s"].sum()))
        if found["nested"]["startup_s"].notna().any():
            raise SystemExit("a smaller world waited for a start of its own")
    mean, error = float(np.mean(logarithms)), float(np.std(logarithms, ddof=1)) / math.sqrt(pairs)
    reach = float(students_t(pairs - 1)) * error
    low, middle, high = np.exp([mean - reach, mean, mean + reach])
    print(heading("Is a smaller world inside a larger one's session the same measurement?"))
    print()
    rows = [
        ["samples per second, nested over own launch", f"{middle:.4f} ({low:.4f}–{high:.4f})"],
        *(
            [f"micro_batch={size}", f"{np.exp(np.mean(values)):.4f}"]
            for size, values in zip(sorted(MICRO_BATCHES), np.transpose(by_point), strict=True)
        ),
        ["start of a launch of its own, s", quartiles(starts, form=".1f")],
    ]
    print(table([f"{pairs} pairs of launches", "mean (95 % interval), or median (quartiles)"], rows))


if __name__ == "__main__":
    main()
