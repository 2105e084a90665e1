"""Accuracy of the step-time model on sweeps of this machine, with modes and compressions.

For each folder of results, a draw takes some points at random, and predicts all others that it
supports. Only the first launch of each point counts. The error is the mean absolute percentage
error of the rate. `benchmarks.search_here --results FOLDER` measures such sweeps.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import dtsweep
from benchmarks.log_entry import heading, table
from dtsweep.analysis import over_launches
from dtsweep.analysis.settings import settings_of_rows
from dtsweep.predict import performance_model

SIZES = (10, 20, 30, 40)
"""Measured points."""


class Outcome(NamedTuple):
    """Outcome of a draw."""

    error: float
    """Mean absolute percentage error of the supported points."""

    coverage: float
    """Share of the rates that the 90 % intervals hold."""

    supported: float
    """Share of the other points that are predicted."""

    seconds: float
    """Time to fit and to predict."""


def predicted(trials: pd.DataFrame, points: pd.DataFrame, *, size: int, seed: int) -> Outcome:
    """Fit the model to a draw, and predict the other points."""
    names = points["point_id"].to_numpy()
    chosen = np.random.default_rng(seed).choice(names, size, replace=False)
    measured = trials[trials["point_id"].isin(chosen)]
    others = points[~points["point_id"].isin(chosen)]
    began = time.perf_counter()
    (model,) = performance_model(measured)
    rows = model.predict(settings_of_rows(others))
    seconds = time.perf_counter() - began
    is_known = rows["reason"].isna().to_numpy()
    truth = others["samples_per_s"].to_numpy("float64")[is_known]
    low, rate, high = (
        rows[f"samples_per_s{end}"].to_numpy("float64")[is_known] for end in ("_low", "", "_high")
    )
    return Outcome(
        error=float(100 * np.mean(np.abs(rate / truth - 1))),
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        supported=float(is_known.mean()),
        seconds=seconds,
    )


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="folders of results")
    parser.add_argument("--seeds", type=int, default=20, help="draws of each size")
    args = parser.parse_args()
    lines = []
    for folder in args.results:
        trials = dtsweep.load(str(folder))
        trials = trials[(trials["status"] == "ok") & (trials["repeat"] == 1)]
        points = over_launches(trials)
        for size in SIZES:
            outcomes = pd.DataFrame(
                [predicted(trials, points, size=size, seed=seed) for seed in range(args.seeds)]
            )
            low, middle, high = outcomes["error"].quantile([0.25, 0.5, 0.75])
            lines.append(
                [
                    folder.name,
                    str(len(points)),
                    str(size),
                    f"{outcomes['error'].mean():.1f}",
                    f"{middle:.1f} ({low:.1f}–{high:.1f})",
                    f"{outcomes['coverage'].mean():.0%}",
                    f"{outcomes['supported'].mean():.0%}",
                    f"{outcomes['seconds'].median():.2f}",
                ]
            )
    print(heading("how well are step times of real sweeps predicted that were not measured?"))
    print()
    names = ["sweep", "points", "measured", "error %, mean", "median (quartiles)"]
    print(table([*names, "coverage", "supported", "s"], lines))


if __name__ == "__main__":
    main()
