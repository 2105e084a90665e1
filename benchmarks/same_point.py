"""Are two points told apart only where they differ? The A/A test of `dtsweep.analysis.difference`.

Simulated from real step times: `step_series` in the folder that DTSWEEP_TEST_DATA names has the steps of 12 launches of
one and the same job. A simulated sweep has two points with so many launches each, drawn from those with replacement;
either the two are the same, or every step of the second takes 5 % longer.

- one session: a launch measures both points, as dtsweep does with points of one world. What is particular to the launch
  is common to both; the steps are drawn anew for each, in blocks of 20 neighbours, which keeps their autocorrelation.
- separate launches: each point has launches of its own, with their steps as they were measured: drawing them anew
  would count the variance within launches twice.

With `--real N`, N sweeps are run: the two points differ in their learning rate alone, which takes no time. That
also tests what the first simulation assumes, that the points of a session share what is particular to it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.log_entry import heading, quartiles, run, table
from dtsweep import Measure, Sweep, workloads
from dtsweep.analysis import difference
from dtsweep.results.schema import TRIALS

SERIES = "launch_mlp384_b128_sync_*.npy"

WARMUP = 20
"""Steps at the start of each series that are slower than the rest."""

BLOCK = 20
"""Neighbouring steps that are drawn together; their autocorrelation is gone after a few."""

FIRST, SECOND = "first", "second"


def series() -> NDArray[np.float64]:
    """Read the step times in seconds: (launches, steps).

    Raises:
        SystemExit: there are none.
    """
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    found = [np.load(file)[WARMUP:] for file in sorted(folder.glob(SERIES))]
    if not found:
        raise SystemExit(f"no {SERIES} in {folder}; DTSWEEP_TEST_DATA names the folder above step_series")
    return np.array(found)


def windows(steps: NDArray[np.float64], drawn: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a window of steps for each drawn launch, in blocks that wrap around: (launches drawn, steps)."""
    length = steps.shape[1]
    starts = rng.integers(length, size=(len(drawn), length // BLOCK, 1))
    places = (starts + np.arange(BLOCK)).reshape(len(drawn), -1) % length
    drawn_steps: NDArray[np.float64] = steps[drawn[:, None], places]
    return drawn_steps


def simulated(*, sweeps: int, launches: int, slower: float, shared: bool) -> pd.DataFrame:
    """Give the differences of the first point to the second in simulated sweeps, which are environments here.

    Args:
        sweeps: how many.
        launches: of each point.
        slower: share by which the second point's steps take longer.
        shared: whether a launch measures both points.
    """
    rng = np.random.default_rng(0)
    steps, size = series(), sweeps * launches
    drawn = rng.integers(len(steps), size=size)
    if shared:
        times = [windows(steps, drawn, rng), windows(steps, drawn, rng)]
    else:
        times = [steps[drawn], steps[rng.integers(len(steps), size=size)]]
    frames = []
    for point, window, factor in zip((FIRST, SECOND), times, (1, 1 + slower), strict=True):
        names = [f"launch {number}" if shared else f"launch {number} of {point}" for number in range(size)]
        known = {"env_id": np.repeat(np.arange(sweeps).astype(str), launches), "session": names, "trial_id": names}
        measured = {"samples_per_s": 1 / window.mean(axis=1), "step_p50_s": np.median(window, axis=1) * factor}
        measured["samples_per_s"] /= factor
        frames.append(pd.DataFrame(known | measured | {"point_id": point, "status": "ok", "semantics": "exact"}))
    rows = pd.concat(frames, ignore_index=True).reindex(columns=[column.name for column in TRIALS])
    return difference(rows, FIRST, SECOND)


def real(*, sweeps: int, launches: int) -> pd.DataFrame:
    """Run sweeps whose two points differ in the learning rate alone; give their differences."""
    sweep = Sweep(
        workload=workloads.Gpt(layers=1, width=64, sequence=32),
        axes={"workers": [2], "micro_batch": [4], "learning_rate": [0.009, 0.01]},
        measure=Measure(repeats=launches, max_seconds=5, canary=False),
    )
    found = []
    for _ in range(sweeps):
        with tempfile.TemporaryDirectory(prefix="dtsweep-same-point-") as folder:
            frame = run(sweep, folder)
        found.append(difference(frame, *frame.sort_values("learning_rate")["point_id"].unique()))
    return pd.concat(found)


def row(what: str, found: pd.DataFrame, *, launches: int) -> list[str]:
    """How often the two were told apart, by throughput and by latency, and how far apart they seemed."""
    cells = [what, str(launches), " and ".join(sorted(found["method"].unique()))]
    for of in ("samples_per_s", "latency_s"):
        rows = found[found["of"] == of]
        same = (rows["verdict"] == "not distinguishable").sum()
        half = (rows["ratio_high"] - rows["ratio_low"]) / 2
        cells += [f"{same} of {len(rows)}", quartiles(rows["ratio"].to_numpy(), form=".3f"), f"{half.median():.3f}"]
    return cells


def main() -> None:
    """Simulate, run what is asked for, and print an entry for docs/log.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_point", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sweeps", type=int, default=500, help="simulated sweeps of each kind (default 500)")
    parser.add_argument("--launches", type=int, default=12, help="launches of each point (default 12)")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="sweeps to run (default none)")
    options = parser.parse_args()
    size = {"sweeps": options.sweeps, "launches": options.launches}
    kinds = {"one session": True, "separate launches": False}
    rows = [
        row(f"simulated, {kind}, {truth}", simulated(**size, slower=slower, shared=shared), launches=options.launches)
        for kind, shared in kinds.items()
        for truth, slower in (("the same", 0.0), ("5 % apart", 0.05))
    ]
    if options.real:
        found = real(sweeps=options.real, launches=options.launches)
        rows.append(row("run, one session, the same", found, launches=options.launches))
    each = ["{}: not distinguishable", "ratio", "half-width"]
    headers = ["sweeps", "launches", "method"]
    headers += [head.format(name) for name in ("throughput", "median step") for head in each]
    note = "Ratios of the first point to the second, median (quartiles); half-widths of their 95 % intervals, median."
    print(heading("Are two points told apart only where they differ?"), table(headers, rows), note, sep="\n\n")


if __name__ == "__main__":
    main()
