"""Does a search find the frontier of a real sweep in a fraction of the grid's time?

Each sweep of `search_sweeps/` is run twice on a private Ray: all points, and with a search. Both
launch the contenders again until the frontier is settled, as by default.

The hypervolume is that of the points which the search measured, as a share of the grid's. Both are
by the grid's first launches: so noise of the search does not count as quality. Each semantics has
its own, over log latency and log rate, each scaled to the grid's range, with reference 1.1. Shown
are the share of the sum, and the smallest share. Time is the wall-clock time from the start of the
run, that of Ray among it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import dtsweep
from benchmarks.log_entry import heading, table
from dtsweep import Search, Sweep
from dtsweep.inference.pareto import hypervolume_of
from dtsweep.predict.gain import REFERENCE

SWEEPS = ("modes", "compressions", "periods")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Trials of a run, and its times."""

    trials: pd.DataFrame
    """Trials that ended ok."""

    first_s: float
    """Wall-clock time until each point had its first launch."""

    whole_s: float
    """Wall-clock time of the run."""


def timed(sweep: Sweep, place: Path) -> Run:
    """Run a sweep."""
    if place.exists():
        raise SystemExit(f"{place} exists already; name another folder")
    began, began_at = time.perf_counter(), pd.Timestamp.now(tz="UTC")
    frame = dtsweep.run(sweep, str(place), address="local")
    whole_s = time.perf_counter() - began
    ok = frame[(frame["status"] == "ok") & (frame["role"] != "canary")]
    first = ok[ok["repeat"] == 1]
    ended = first["started_at"] + pd.to_timedelta(first["trial_s"], unit="s")
    return Run(trials=ok, first_s=(ended.max() - began_at).total_seconds(), whole_s=whole_s)


def shares_of_volume(grid: pd.DataFrame, points: set[str]) -> tuple[float, float]:
    """Hypervolume of some points as a share of the grid's: of the sum, and the smallest."""
    means = (
        grid[grid["repeat"] == 1]
        .groupby("point_id")
        .agg(
            latency=("latency_s", "mean"),
            rate=("samples_per_s", "mean"),
            kind=("semantics", "first"),
        )
    )
    of_searched, of_grid = [], []
    reference = np.full(2, REFERENCE)
    for _, rows in means.groupby("kind"):
        costs = np.stack([np.log(rows["latency"]), -np.log(rows["rate"])], axis=1)
        spread = np.ptp(costs, axis=0)
        costs = (costs - costs.min(axis=0)) / np.where(spread > 0, spread, 1.0)
        of_grid.append(hypervolume_of(costs, reference))
        of_searched.append(hypervolume_of(costs[rows.index.isin(points)], reference))
    shares = np.divide(of_searched, of_grid)
    return sum(of_searched) / sum(of_grid), float(shares.min())


def compared(name: str, folder: Path) -> list[str]:
    """Run a sweep with and without a search; write its row of the table."""
    sweep = importlib.import_module(f"benchmarks.search_sweeps.{name}").sweep
    grid = timed(sweep, folder / f"{name}-grid")
    search = timed(replace(sweep, search=Search()), folder / f"{name}-search")
    points = set(search.trials["point_id"])
    whole, smallest = shares_of_volume(grid.trials, points)
    cells = [
        name,
        str(grid.trials["point_id"].nunique()),
        str(len(points)),
        f"{whole:.1%}",
        f"{smallest:.1%}",
        f"{grid.first_s:.0f}",
        f"{search.first_s:.0f}",
        f"{search.first_s / grid.first_s:.0%}",
        f"{grid.whole_s:.0f}",
        f"{search.whole_s:.0f}",
        f"{search.whole_s / grid.whole_s:.0%}",
    ]
    print(" | ".join(cells), file=sys.stderr, flush=True)
    return cells


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SWEEPS))
    parser.add_argument("--results", type=Path, help="folder in which the results stay")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.results or Path(temporary)
        rows = [compared(name, folder) for name in args.sweeps]
    print(heading("does a search find the frontier of a real sweep in less time?"))
    print()
    names = ["sweep", "points", "searched", "hypervolume", "smallest"]
    for part in ("first launches", "settled"):
        names += [f"{part}: grid s", "search s", "share"]
    print(table(names, rows))


if __name__ == "__main__":
    main()
