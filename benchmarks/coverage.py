"""How often do intervals hold the truth, and tests tell what there is, on simulated draws?

Tests hold the formulas on small examples; here are draws enough to tell 95 % from 93 %. What other
benchmarks simulate is not here: the frontier and differences are in `same_point`, recommendations
in `recommend`, shares of the exchange in `exchange`, windows in `stopping`.

`off` marks a rate that is further from what is expected than three standard deviations of so many
draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from benchmarks.log_entry import heading, table
from dtsweep.analysis import over_launches, scaling
from tests.analysis.ladders import ladder
from tests.compare.test_regressions import compared, drawn
from tests.frames import trials
from tests.outcomes import outcome, row_of
from tests.rates import chance

HELD, CALLED = 0.95, 0.05
"""Expected shares: of intervals that hold, of wrong calls at most, of differences told."""


class Rate(NamedTuple):
    """A share of simulated draws."""

    what: str
    draws: int
    share: float
    expected: float
    bound: str = ""
    """`≤` or `≥` where it may be less or more than what is expected."""

    @property
    def is_off(self) -> bool:
        """True if chance does not explain the distance."""
        apart = self.share - self.expected
        if self.bound == "≥":
            apart = -apart
        elif not self.bound:
            apart = abs(apart)
        return apart > chance(self.expected, self.draws)


TRUE_RATE = 1000.0


def alike(
    *, points: int, launches: int, together: bool, single: int = 0, count: int
) -> pd.DataFrame:
    """So many sweeps, each an environment, of points with one true rate.

    Another `single` points have one launch each.

    Launches differ by 3 %, steps leave 2 %; `together`: a launch measures all points, which its
    particularity shifts alike.
    """
    rng = np.random.default_rng(1)
    shape = (count, points + single, launches)
    particular = rng.normal(0, 0.03, (count, 1, launches) if together else shape)
    rates = TRUE_RATE * (1 + particular + rng.normal(0, 0.02, shape)).ravel()
    sweep, point, launch = (axis.ravel() for axis in np.indices(shape))
    names = zip(sweep, point, launch, strict=True)
    frame = trials({}).loc[[0] * len(rates)].reset_index(drop=True)
    frame = frame.assign(
        env_id=sweep.astype(str),
        point_id=point.astype(str),
        session=[f"{a}.{c}" if together else f"{a}.{b}.{c}" for a, b, c in names],
        samples_per_s=rates,
        samples_per_s_error=TRUE_RATE * 0.02,
        samples_per_s_low=rates - 1.96 * TRUE_RATE * 0.02,
        samples_per_s_high=rates + 1.96 * TRUE_RATE * 0.02,
    )
    kept: pd.DataFrame = frame[(point < points) | (launch == 0)]
    return kept


SWEEPS: list[tuple[str, int, dict[str, Any]]] = [
    ("launches", 3, {"points": 1, "launches": 3, "together": False}),
    ("launches", 3, {"points": 6, "launches": 3, "together": True}),
    ("launches", 8, {"points": 3, "launches": 8, "together": False}),
    ("pooled", 2, {"points": 6, "launches": 2, "together": False}),
    ("pooled", 3, {"points": 4, "launches": 3, "together": False}),
    ("pooled", 1, {"points": 6, "launches": 3, "together": False, "single": 2}),
]
"""The kind of interval of points with so many launches, in a sweep of this size."""


def share_held(kind: str, launches: int, size: dict[str, Any], *, count: int) -> float:
    """Share of the intervals that hold the truth."""
    points = over_launches(alike(**size, count=count))
    points = points[points["launches"] == launches]
    assert points["interval"].unique().tolist() == [kind]
    holds = (points["samples_per_s_low"] <= TRUE_RATE) & (points["samples_per_s_high"] >= TRUE_RATE)
    return float(holds.mean())


def shares_of_gains_held(count: int) -> list[float]:
    """Share of ladders whose intervals hold the true gain, by size."""
    rates = {1: 100.0, 2: 190.0, 4: 340.0, 8: 500.0}
    rng = np.random.default_rng(9)
    rows = scaling(ladder(rates, launches=3, error=0.01, rng=rng, count=count))
    held = []
    for workers, gain in ((2, 0.9), (4, 0.75), (8, 0.4)):
        there = rows[rows["workers"] == workers]
        held.append(float(((there["gain_low"] <= gain) & (gain <= there["gain_high"])).mean()))
    return held


def found_in(sigmas: list[float], *, base: int, new: int, slower: float, count: int) -> float:
    """Share of pairs of runs in which a regression is told."""
    rng = np.random.default_rng(2)
    runs = [
        compared(
            drawn(rng, sigmas, launches=base),
            drawn(rng, sigmas, launches=new, slower=slower),
            of="samples_per_s",
        )
        for _ in range(count)
    ]
    return float(np.mean([rows["is_regression"].any() for rows in runs]))


def launches(draws: int) -> Iterator[Rate]:
    """Intervals of points over their launches, in sweeps of several sizes."""
    for kind, count, size in SWEEPS:
        sizes = ", ".join(f"{name} {value}" for name, value in size.items())
        held = share_held(kind, count, size, count=draws)
        yield Rate(f"interval of {count} launches ({kind}; {sizes})", draws, held, HELD)


def ladders(draws: int) -> Iterator[Rate]:
    """Gains of larger worlds."""
    for workers, share in zip((2, 4, 8), shares_of_gains_held(draws), strict=True):
        yield Rate(f"gain of {workers} workers", draws, share, HELD)


def runs(draws: int) -> Iterator[Rate]:
    """Regressions between two runs of six points."""
    alike, mixed = [0.01] * 6, [0.04, 0.04, *[0.005] * 4]
    for base, new in ((3, 3), (8, 1)):
        words = f"{base} launches against {new}"
        for sigmas, kind in ((alike, "alike"), (mixed, "unequal noise")):
            size = {"base": base, "new": new, "count": draws}
            found = found_in(sigmas, slower=0, **size)
            yield Rate(f"regression of nothing, {words}, {kind}", draws, found, CALLED, "≤")
        found = found_in(alike, slower=0.1, base=base, new=new, count=draws)
        yield Rate(f"a tenth slower missed, {words}", draws, 1 - found, CALLED, "≤")


def share_of_rates_held(sync: str, *, count: int) -> float:
    """Share of windows whose interval holds the true rate of four workers."""
    random = np.random.default_rng(0)
    # Of workers apart the fourth is four times as slow; in step all wait for the same step.
    # Of steps that take so long no pause that may come yet counts.
    is_apart = sync == "parameter_server"
    means = 100 * (np.array([1.0, 1.0, 1.0, 4.0]) if is_apart else np.ones(4))
    truth = 4 * np.sum(1 / means)
    hits = []
    for _ in range(count):
        common = random.gamma(100, 1 / 100, size=80)
        times = [
            mean * (random.gamma(100, 1 / 100, size=int(8000 / mean)) if is_apart else common)
            for mean in means
        ]
        row = row_of([outcome(list(series)) for series in times], sync=sync)
        hits.append(row["samples_per_s_low"] <= truth <= row["samples_per_s_high"])
    return float(np.mean(hits))


def asynchronous_rates_held(workers: int, common: float, *, count: int) -> list[bool]:
    """Of windows without a drift: True where the interval holds the true rate.

    Args:
        workers: apart from each other.
        common: the share of the variance of steps that all of them have in common.
        count: of windows.
    """
    random = np.random.default_rng(workers)
    hits = []
    for _ in range(count):
        # Steps of 1 s whose noise of a tenth remembers 0.3 of the step before; so much of its
        # variance is everybody's.
        drawn = lfilter(
            [1.0], [1.0, -0.3], random.normal(size=(workers + 1, 300)) * np.sqrt(1 - 0.09), axis=1
        )
        noise = np.sqrt(common) * drawn[:1] + np.sqrt(1 - common) * drawn[1:]
        row = row_of([outcome(list(1 + 0.1 * one)) for one in noise], sync="parameter_server")
        # What is taken for a drift, of one in twenty at most, has no interval.
        if "drift" not in row["flags"]:
            hits.append(row["samples_per_s_low"] <= 4 * workers <= row["samples_per_s_high"])
    return hits


def windows(draws: int) -> Iterator[Rate]:
    """Rates of workers in step and apart; no interval is narrower than half a percent."""
    for sync in ("ddp", "parameter_server"):
        held = share_of_rates_held(sync, count=draws)
        yield Rate(f"samples_per_s of a window, {sync}", draws, held, HELD, "≥")
    for workers in (2, 8):
        for common in (0.0, 0.5, 1.0):
            hits = asynchronous_rates_held(workers, common, count=draws)
            what = f"samples_per_s of {workers} workers apart, {common:.0%} of noise in common"
            yield Rate(what, len(hits), float(np.mean(hits)), HELD, "≥")


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--draws", type=int, default=400, help="simulated draws of each kind (default 400)"
    )
    draws = parser.parse_args().draws
    rows = []
    for kind in (launches, ladders, runs, windows):
        for rate in kind(draws):
            expected = f"{rate.bound} {rate.expected:.0%}".strip()
            mark = "off" if rate.is_off else ""
            rows.append([rate.what, str(rate.draws), f"{rate.share:.1%}", expected, mark])
    print(heading("How often do intervals hold, and tests tell what there is?"))
    print()
    print(table(["claim", "draws", "rate", "expected", ""], rows))


if __name__ == "__main__":
    main()
