"""Are two points told apart only where they differ? The A/A test of `dtsweep.analysis.difference`.

Simulated from real step times: `step_series` in the folder that DTSWEEP_TEST_DATA names has the
steps of 12 launches of one and the same job. A simulated sweep has two points with so many launches
each, drawn from those with replacement; either the two are the same, or every step of the second
takes 5 % longer.

- one session: a launch measures both points, as dtsweep does with points of one world. What is
  particular to the launch is common to both; the steps are drawn anew for each, in blocks of 20
  neighbours, which keeps their autocorrelation.
- separate launches: each point has launches of its own, with their steps as they were measured:
  drawing them anew would count the variance within launches twice.

Then from Gaussian noise, since points of a real sweep are unequally noisy (half-widths from 1 % to
76 % in one): how often the first two of ten points are told apart that vary as `CELLS` says; how
often the intervals of `over_launches` hold the truth; and how often `frontier` leaves out one of
two points that are both best.

With `--real N`, N sweeps are run: the two points differ in their learning rate alone, which takes
no time. That also tests what the first simulation assumes, that the points of a session share what
is particular to it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.log_entry import heading, quartiles, run, table
from dtsweep import Measure, Sweep, workloads
from dtsweep.analysis import difference, frontier, over_launches
from dtsweep.inference.verdicts import Verdict
from dtsweep.results.schema import TRIALS

SERIES = "launch_mlp384_b128_sync_*.npy"

WARMUP = 20
"""Steps at the start of each series that are slower than the rest."""

BLOCK = 20
"""Neighbouring steps that are drawn together; their autocorrelation is gone after a few."""

FIRST, SECOND = "first", "second"

LAUNCHES = (2, 3, 4, 6)
"""Of each point, in the table of unequal noise."""


class Cell(NamedTuple):
    """Ten points with the same true rate, of which the first two are compared."""

    what: str
    windows: Sequence[float]
    """Standard errors of windows, in percent."""
    launches: Sequence[float] = (0.0,)
    """Standard deviations of what a launch adds to each point by itself, in percent.

    The last one is repeated.
    """
    claimed: float = 1.0
    """What windows say of their error, as a multiple of it."""
    apart: float = 0.0
    """By how much the first point is faster after all, in percent."""
    once: bool = False
    """True if the two that are compared have one launch each."""


NOISY, QUIET, ALIKE = [4.0] * 2 + [0.5] * 8, [0.5] * 2 + [4.0] * 8, [2.0] * 10
SPREAD = [4.0, 4.0, *np.geomspace(0.5, 3.2, 8)]
CELLS = (
    Cell("two with 4 % among eight with 0.5 %", NOISY),
    Cell("the same, launches add 2 %", NOISY, [2.0]),
    Cell("the same, windows claim 0.7 of their error", NOISY, claimed=0.7),
    Cell("the same, windows claim 1.5 of their error", NOISY, claimed=1.5),
    Cell("the same, launches add 2 %, the two have one launch", NOISY, [2.0], once=True),
    Cell("0.5 % to 4 %, launches add 1 %", SPREAD, [1.0]),
    Cell("all alike, 2 % in windows", ALIKE),
    Cell("all alike, 2 % between launches", [0.01] * 10, [2.0]),
    Cell("all alike, 1.4 % in windows, 1.4 % between launches", [1.414] * 10, [1.414]),
    Cell("**not alike**: between launches 4 % for two, 0.5 % for eight", [0.01] * 10, NOISY),
    Cell("**not alike**: the same with 2 % for two, 1 % in windows", [1.0] * 10, [2.0, 2.0, 0.5]),
    Cell("**apart**: all alike, by 2 % = 1 σ", ALIKE, apart=2.0),
    Cell("**apart**: all alike, by 4 % = 2 σ", ALIKE, apart=4.0),
    Cell("**apart**: all between launches, by 4 % = 2 σ", [0.01] * 10, [2.0], apart=4.0),
    Cell("**apart**: two with 0.5 % among eight with 4 %, by 6 %", QUIET, apart=6.0),
)


def series() -> NDArray[np.float64]:
    """Read the step times in seconds: (launches, steps).

    Raises:
        SystemExit: there are none.
    """
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    found = [np.load(file)[WARMUP:] for file in sorted(folder.glob(SERIES))]
    if not found:
        raise SystemExit(
            f"no {SERIES} in {folder}; DTSWEEP_TEST_DATA names the folder above step_series"
        )
    return np.array(found)


def windows(
    steps: NDArray[np.float64], drawn: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw a window of steps per drawn launch, in blocks that wrap around: (launches, steps)."""
    length = steps.shape[1]
    starts = rng.integers(length, size=(len(drawn), length // BLOCK, 1))
    places = (starts + np.arange(BLOCK)).reshape(len(drawn), -1) % length
    drawn_steps: NDArray[np.float64] = steps[drawn[:, None], places]
    return drawn_steps


def simulated(*, sweeps: int, launches: int, slower: float, shared: bool) -> pd.DataFrame:
    """Return the differences of the first point to the second in simulated sweeps.

    A sweep is an environment here.

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
        names = [
            f"launch {number}" if shared else f"launch {number} of {point}"
            for number in range(size)
        ]
        known = {
            "env_id": np.repeat(np.arange(sweeps).astype(str), launches),
            "session": names,
            "trial_id": names,
        }
        measured = {
            "samples_per_s": 1 / window.mean(axis=1),
            "latency_s": np.median(window, axis=1) * factor,
        }
        measured["samples_per_s"] /= factor
        frames.append(
            pd.DataFrame(
                known | measured | {"point_id": point, "status": "ok", "semantics": "exact"}
            )
        )
    rows = pd.concat(frames, ignore_index=True).reindex(columns=[column.name for column in TRIALS])
    return difference(rows, FIRST, SECOND)


def noisy(cell: Cell, *, sweeps: int, launches: int, shared: bool, seed: int) -> pd.DataFrame:
    """Draw trials of simulated sweeps, which are environments here."""
    rng = np.random.default_rng(seed)
    shape = (sweeps, len(cell.windows), launches)
    windows = np.array(cell.windows)[:, None] / 100
    added = (
        np.pad(cell.launches, (0, len(windows) - len(cell.launches)), mode="edge")[:, None] / 100
    )
    logs = rng.normal(size=shape) * np.hypot(windows, added)
    if shared:
        logs += rng.normal(0, 0.03, (sweeps, 1, launches))
    logs[:, 0] += cell.apart / 100
    sweep, point, launch = (axis.ravel() for axis in np.indices(shape))
    owner = np.zeros_like(point) if shared else point
    names = np.array([FIRST, SECOND, *map(str, range(len(windows) - 2))])
    rates, errors = (
        100 * np.exp(logs.ravel()),
        cell.claimed * np.broadcast_to(windows, shape).ravel(),
    )
    rows = pd.DataFrame(
        {
            "env_id": sweep.astype(str),
            "point_id": names[point],
            "session": [f"{a}.{b}.{c}" for a, b, c in zip(sweep, owner, launch, strict=True)],
            "status": "ok",
            "semantics": "exact",
            "samples_per_s": rates,
            "samples_per_s_low": rates * (1 - 1.96 * errors),
            "samples_per_s_high": rates * (1 + 1.96 * errors),
        }
    )
    rows = rows[~((point < 2) & (launch > 0))] if cell.once else rows
    return rows.reindex(columns=[column.name for column in TRIALS])


def told_apart(cell: Cell, *, sweeps: int, launches: int, shared: bool, seed: int) -> str:
    """In how many sweeps the first two points are called faster or slower."""
    rows = noisy(cell, sweeps=sweeps, launches=launches, shared=shared, seed=seed)
    found = difference(rows, FIRST, SECOND, of=["samples_per_s"])
    return f"{found['verdict'].isin([Verdict.FASTER, Verdict.SLOWER]).mean():.1%}"


def held(cell: Cell, *, sweeps: int, launches: int, seed: int) -> list[str]:
    """Share of intervals that hold the truth: of the first two points, and of the others.

    Each point has launches of its own.
    """
    points = over_launches(noisy(cell, sweeps=sweeps, launches=launches, shared=False, seed=seed))
    holds = (points["samples_per_s_low"] <= 100) & (points["samples_per_s_high"] >= 100)
    first = points["point_id"].isin([FIRST, SECOND])
    return [f"{holds[which].mean():.1%}" for which in (first, ~first)]


def left_out(*, sweeps: int, shared: bool, seed: int) -> str:
    """Share of sweeps in which one of two best points is off the frontier.

    There are 3 launches, with noise of 2.5 %.
    """
    cell = Cell("", [2.5, 2.5])
    rows, others = (
        noisy(cell, sweeps=sweeps, launches=3, shared=shared, seed=number)
        for number in (seed, seed + 1)
    )
    first = rows["point_id"] == FIRST
    rows["latency_s"] = others["samples_per_s"] * np.where(first, 1.0, 0.97)
    rows["samples_per_s"] *= np.where(first, 1.0, 0.99)
    for name in ("samples_per_s", "latency_s"):
        rows[f"{name}_low"], rows[f"{name}_high"] = rows[name] * 0.99, rows[name] * 1.01
    points = frontier(rows)
    return f"{(~points['on_frontier']).groupby(points['env_id']).any().mean():.1%}"


def uneven(*, sweeps: int, seed: int) -> list[str]:
    """Tables of unequal noise, each with what it shows."""
    seeds = itertools.count(seed)
    kinds = {"one session": True, "own launches": False}
    told = [
        [cell.what]
        + [
            told_apart(cell, sweeps=sweeps, launches=count, shared=shared, seed=next(seeds))
            for shared in kinds.values()
            for count in LAUNCHES
        ]
        for cell in CELLS
    ]
    intervals = [
        [
            cell.what,
            str(count),
            *held(cell, sweeps=sweeps // 10 + 1, launches=count, seed=next(seeds)),
        ]
        for cell in CELLS[:2]
        for count in LAUNCHES
    ]
    off = [
        [kind, left_out(sweeps=sweeps, shared=shared, seed=next(seeds))]
        for kind, shared in kinds.items()
    ]
    return [
        table(
            ["two of ten points", *(f"{kind}, {count}" for kind in kinds for count in LAUNCHES)],
            told,
        ),
        f"Called faster or slower, by launches, in {sweeps} sweeps each; "
        "the two are equal but where it says apart. "
        "Not alike: against the assumption that launches add as much to all points.",
        table(["points", "launches of their own", "first two", "others"], intervals),
        f"Intervals that hold the truth, in {sweeps // 10 + 1} sweeps each.",
        table(["two points", "one is off the frontier"], off),
        "Latency 100 and 97, throughput 100 and 99, each with noise of 2.5 %, 3 launches; "
        f"{sweeps} sweeps each.",
    ]


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
    """Number of sweeps that don't distinguish the two, by throughput and latency, and ratios."""
    cells = [what, str(launches), " and ".join(sorted(found["method"].unique()))]
    for of in ("samples_per_s", "latency_s"):
        rows = found[found["of"] == of]
        same = rows["verdict"].isin([Verdict.UNDECIDED, Verdict.EQUAL]).sum()
        half = (rows["ratio_high"] - rows["ratio_low"]) / 2
        cells += [
            f"{same} of {len(rows)}",
            quartiles(rows["ratio"].to_numpy(), form=".3f"),
            f"{half.median():.3f}",
        ]
    return cells


def main() -> None:
    """Simulate, run what is asked for, and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_point", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--sweeps", type=int, default=500, help="simulated sweeps of each kind (default 500)"
    )
    parser.add_argument(
        "--launches", type=int, default=12, help="launches of each point (default 12)"
    )
    parser.add_argument(
        "--uneven",
        type=int,
        default=200,
        help="simulated sweeps of each unequal noise (default 200)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the unequal noise (default 0)")
    parser.add_argument(
        "--real", type=int, default=0, metavar="N", help="sweeps to run (default none)"
    )
    options = parser.parse_args()
    size = {"sweeps": options.sweeps, "launches": options.launches}
    kinds = {"one session": True, "separate launches": False}
    rows = [
        row(
            f"simulated, {kind}, {truth}",
            simulated(**size, slower=slower, shared=shared),
            launches=options.launches,
        )
        for kind, shared in kinds.items()
        for truth, slower in (("the same", 0.0), ("5 % apart", 0.05))
    ]
    if options.real:
        found = real(sweeps=options.real, launches=options.launches)
        rows.append(row("run, one session, the same", found, launches=options.launches))
    each = ["{}: no difference found", "ratio", "half-width"]
    headers = ["sweeps", "launches", "method"]
    headers += [head.format(name) for name in ("throughput", "median step") for head in each]
    note = (
        "Ratios of the first point to the second, median (quartiles); "
        "half-widths of their 95 % intervals, median."
    )
    parts = [
        heading("Are two points told apart only where they differ?"),
        table(headers, rows),
        note,
    ]
    print(*parts, *uneven(sweeps=options.uneven, seed=options.seed), sep="\n\n")


if __name__ == "__main__":
    main()
