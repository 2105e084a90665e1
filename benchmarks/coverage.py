"""How often do intervals hold the truth, and tests tell what there is, on simulated draws?

Fast tests make some of the same draws, few of them: they find what is badly wrong. Here are enough
to tell 95 % from 93 %. What other benchmarks simulate is not here: the frontier and differences are
in `same_point`, recommendations in `recommend`, shares of the exchange in `exchange`, windows in
`stopping`.

`off` marks a rate that is further from what is expected than three standard deviations of so many
draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from benchmarks.log_entry import heading, table
from tests.analysis import test_launches, test_usl, test_worthwhile
from tests.compare import test_regressions
from tests.inference import test_power
from tests.outcomes import outcome, row_of
from tests.rates import chance

HELD, CALLED, TOLD = 0.95, 0.05, 0.8
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


def launches(draws: int) -> Iterator[Rate]:
    """Intervals of points over their launches, in sweeps of several sizes."""
    for kind, count, size in test_launches.SWEEPS:
        sizes = ", ".join(f"{name} {value}" for name, value in size.items())
        held = test_launches.share_held(kind, count, size, count=draws)
        yield Rate(f"interval of {count} launches ({kind}; {sizes})", draws, held, HELD)


def ladders(draws: int) -> Iterator[Rate]:
    """Parameters of the law of scaling, and gains of larger worlds."""
    for name, share in test_usl.shares_of_parameters_held(draws).items():
        yield Rate(f"{name} of the USL, by launches", draws, share, HELD)
    residuals = test_usl.share_held_by_residuals(draws)
    yield Rate("contention of the USL, by residuals", draws, residuals, HELD)
    for workers, share in zip((2, 4, 8), test_worthwhile.shares_of_gains_held(draws), strict=True):
        yield Rate(f"gain of {workers} workers", draws, share, HELD)


def runs(draws: int) -> Iterator[Rate]:
    """Regressions between two runs of six points."""
    alike, mixed = [0.01] * 6, [0.04, 0.04, *[0.005] * 4]
    for base, new in ((3, 3), (8, 1)):
        words = f"{base} launches against {new}"
        for sigmas, kind in ((alike, "alike"), (mixed, "unequal noise")):
            drawn = {"base": base, "new": new, "count": draws}
            found = test_regressions.found_in(sigmas, slower=0, **drawn)
            yield Rate(f"regression of nothing, {words}, {kind}", draws, found, CALLED, "≤")
        found = test_regressions.found_in(alike, slower=0.1, base=base, new=new, count=draws)
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


def power(draws: int) -> Iterator[Rate]:
    """Differences that as many more launches tell as are said to be needed."""
    for points, apart in test_power.PAIRS:
        for together in (True, False):
            share = test_power.share_told(points, apart, together=together, count=draws)
            where = "in the same launches" if together else "in launches of their own"
            what = f"{apart:.1%} apart told by `more_launches`, of {points} points {where}"
            yield Rate(what, draws, share, TOLD, "≥")


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
    for kind in (launches, ladders, runs, windows, power):
        for rate in kind(draws):
            expected = f"{rate.bound} {rate.expected:.0%}".strip()
            mark = "off" if rate.is_off else ""
            rows.append([rate.what, str(rate.draws), f"{rate.share:.1%}", expected, mark])
    print(heading("How often do intervals hold, and tests tell what there is?"))
    print()
    print(table(["claim", "draws", "rate", "expected", ""], rows))


if __name__ == "__main__":
    main()
