"""How often do intervals hold the truth, and tests tell what there is, on simulated draws?

The fast tests make the same draws, few of them: they find what is badly wrong. Here are enough to
tell 95 % from 93 %. What other benchmarks simulate is not here: the frontier and differences are in
`same_point`, recommendations in `recommend`, shares of the exchange in `exchange`, windows in
`stopping`.

`off` marks a rate that is further from what is expected than three standard deviations of so many
draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.log_entry import heading, table
from tests.analysis import test_launches, test_usl, test_worthwhile
from tests.compare import test_regressions
from tests.inference import test_power
from tests.metrics import test_summary
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


def windows(draws: int) -> Iterator[Rate]:
    """Rates of workers in step and apart; no interval is narrower than half a percent."""
    for sync in ("ddp", "parameter_server"):
        held = test_summary.share_of_rates_held(sync, count=draws)
        yield Rate(f"samples_per_s of a window, {sync}", draws, held, HELD, "≥")
    for workers in (2, 8):
        for common in (0.0, 0.5, 1.0):
            hits = test_summary.asynchronous_rates_held(workers, common, count=draws)
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
