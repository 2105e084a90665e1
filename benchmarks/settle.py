"""How often does a settled question get the right answer, and what does that take next to a grid?

Simulated sweeps whose truth is known. Their points are drawn from published step times of a
distributed job (`scaling/` of the folder `DTSWEEP_TEST_DATA`); the tops of some of them are moved,
so that the best point leads by a given distance. A launch shifts all its points alike, and each
point by itself: half of the variance between launches is shared. `heavy` has Student's t with 3
degrees of freedom between launches, `drift` a machine that slows down from launch to launch, by 2 %
in all, and a random walk in between. `recorded` are blocks of cycles that were recorded on a busy
machine (`drift.json`): whole windows see a block each, points in turn the same one (`in turn`).

A *right* answer chooses a point that is within the indifference zone of the best. `wrong best` is
one that is called the best and is not; `wrong equal` is one that is farther than the zone from the
best, or from another one that is called equal. Launches and time are shares of a grid with 5
launches of each point. Seconds are simulated.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.log_entry import heading, table
from benchmarks.rehearsal import Rules, Turns, Windows, first_round, play
from dtsweep.inference.contrasts import contrasts
from dtsweep.inference.looks import look_level
from dtsweep.inference.selection import Candidates, Selection, differences_of, select
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import PRIOR_SIGMA
from dtsweep.inference.verdicts import Answer

Numbers = NDArray[np.float64]

ZONE = float(np.log1p(0.03))
CONFIDENCE = 0.95
MAX_LAUNCHES = 8
GRIDS = (1, 3, 5)
WINDOWS = Windows(
    first_half_width=0.05, half_width=0.02, second_s=0.02, longest_s=60.0, launch_s=2.0
)
"""A window of one second has a standard error of 2 %."""

START_S = 15.0
"""Of the session of a launch."""

JOBS = ("bert", "cifar10", "deepspeech2", "ncf")


class Noise(NamedTuple):
    """Noise between launches."""

    sigma: float
    """Standard deviation, as a share."""
    kind: str = "normal"


NOISES = (
    *(Noise(sigma) for sigma in (0.005, 0.01, 0.02, 0.04, 0.1)),
    *(Noise(0.02, kind) for kind in ("heavy", "drift")),
    Noise(0.01, "recorded"),
)

CYCLES = 20
"""Of turns in a session; as many turns long is a whole window."""


class Recorded:
    """Drift that was recorded: what points share in a cycle, and what each has of its own."""

    def __init__(self) -> None:
        records = json.loads((Path(__file__).parent / "drift.json").read_text())
        logs = [np.array(record["logarithms"]) for record in records]
        logs = [one for one in logs if one.shape[1] > CYCLES]
        self.shared = [one.mean(axis=0) for one in logs]
        scale = [(len(one) / (len(one) - 1)) ** 0.5 for one in logs]
        residuals = [
            size * (one - shared)
            for one, shared, size in zip(logs, self.shared, scale, strict=True)
        ]
        self.own = [row - row.mean() for one in residuals for row in one]

    def block(self, series: list[Numbers], rng: np.random.Generator) -> Numbers:
        """Draw a block of `CYCLES` cycles."""
        one = series[rng.integers(len(series))]
        start = rng.integers(len(one) - CYCLES + 1)
        return one[start : start + CYCLES]


RECORDED = Recorded()


def surfaces() -> dict[str, Numbers]:
    """Logarithms of samples per second of published configurations, by job."""
    folder = Path(os.environ["DTSWEEP_TEST_DATA"]) / "scaling"
    found = {}
    for job in JOBS:
        with (folder / job / "placements.csv").open() as file:
            rows = list(csv.DictReader(file))
        rates = [
            sum(map(int, row["placement"])) * float(row["local_bsz"]) / float(row["step_time"])
            for row in rows
        ]
        found[job] = np.log(rates)
    return found


class Truth(NamedTuple):
    """How the best points of a simulated sweep lie."""

    name: str
    lead: Callable[[np.random.Generator], float] | None
    """Distance of the second best point to the best; None is as published."""


TRUTHS = (
    Truth("as published", None),
    Truth("best leads by 2 zones or more", lambda rng: rng.uniform(2, 4) * ZONE),
    Truth("two within half a zone", lambda rng: rng.uniform(0, 0.5) * ZONE),
    Truth("two just over a zone apart", lambda rng: rng.uniform(1.0, 1.3) * ZONE),
    Truth("two nearly equal", lambda rng: rng.uniform(0, 0.05) * ZONE),
)


def costs_of(surface: Numbers, points: int, truth: Truth, rng: np.random.Generator) -> Numbers:
    """True costs of the points of a sweep: logarithms, smaller is better."""
    costs: Numbers = -rng.choice(surface, size=points, replace=len(surface) < points)
    if truth.lead is None:
        return costs
    best, *others = np.argsort(costs)
    second = costs[best] + truth.lead(rng)
    # The others keep their distances to each other, behind two zones from the best.
    behind = costs[best] + max(2 * ZONE, second - costs[best])
    costs[others] += max(0.0, behind - costs[others[0]])
    costs[others[0]] = second
    return costs


@dataclass
class Machine:
    """Draws what launches measure."""

    costs: Numbers
    noise: Noise
    rng: np.random.Generator

    def __call__(self, points: NDArray[np.intp], number: int, error: float) -> Numbers:
        """Costs of points in a launch, with windows of this standard error."""
        part = self.noise.sigma / 2**0.5
        if self.noise.kind == "recorded":
            places = range(len(points))
            return np.array([self.cycles(points[[place]]).mean() for place in places])
        own = self.rng.normal(0, part, len(points))
        if self.noise.kind == "heavy":
            own = part * self.rng.standard_t(3, len(points)) / 3**0.5
        shared = self.rng.normal(0, part)
        if self.noise.kind == "drift":
            shared += 0.02 * number / MAX_LAUNCHES
            # A walk from point to point within a launch, in the order in which they are measured.
            walk = self.rng.normal(0, part / len(points) ** 0.5, len(points)).cumsum()
            own = own / 2 + self.rng.permutation(walk)
        windows = self.rng.normal(0, error, len(points))
        found: Numbers = self.costs[points] + own + shared + windows
        return found

    def cycles(self, points: NDArray[np.intp]) -> Numbers:
        """Costs of points in turn, (points, cycles), of one session."""
        own = [RECORDED.block(RECORDED.own, self.rng) for _ in points]
        session = self.rng.normal(0, self.noise.sigma, (len(points), 1))
        shared = RECORDED.block(RECORDED.shared, self.rng)
        found: Numbers = self.costs[points][:, None] + session - np.array(own) - shared
        return found


class Result(NamedTuple):
    """Answer of one simulated sweep, and what it took."""

    selection: Selection
    launches: int
    seconds: float


def in_turn(machine: Machine, candidates: Candidates) -> Result:
    """Measure until the question is decided, contenders in turn."""
    return settled(machine, candidates, turns=machine.cycles)


def settled(machine: Machine, candidates: Candidates, *, turns: Turns | None = None) -> Result:
    """Measure until the question is decided."""
    rules = Rules(ZONE, look_level(CONFIDENCE, MAX_LAUNCHES), MAX_LAUNCHES)
    rehearsal = first_round(len(machine.costs), machine, WINDOWS)
    rehearsal = play(rehearsal, machine, candidates, WINDOWS, rules, turns)
    assert rehearsal.selection is not None
    launches = sum(rehearsal.trials)
    rest_s = launches * WINDOWS.launch_s + len(rehearsal.trials) * START_S
    return Result(rehearsal.selection, launches, rehearsal.window_s + rest_s)


def gridded(machine: Machine, candidates: Candidates, *, launches: int) -> Result:
    """Launch every point as often, then answer."""
    points = np.arange(len(machine.costs))
    error = WINDOWS.half_width / 1.96
    means = np.column_stack([machine(points, number, error) for number in range(launches)])
    found = Launches(pd.DataFrame(index=points), means, np.full(len(points), error**2), PRIOR_SIGMA)
    differences = differences_of(contrasts(found, points, points), found, points, points)
    counted = Candidates(
        counts=found.counts,
        is_met=candidates.is_met,
        is_likely=candidates.is_likely,
        prices=candidates.prices,
    )
    selection = select(differences, counted, zone=ZONE, level=1 - CONFIDENCE)
    count = launches * len(points)
    seconds = count * (WINDOWS.length_s(error) + WINDOWS.launch_s) + launches * START_S
    return Result(selection, count, seconds)


def judged(result: Result, costs: Numbers) -> Iterator[str]:
    """Marks of an answer."""
    selection = result.selection
    answer = selection.answer
    loss = costs[selection.chosen] - costs.min()
    yield str(answer)
    if answer in (Answer.BEST, Answer.EQUAL):
        yield "decided"
        if loss <= ZONE:
            yield "right"
    if answer is Answer.BEST and loss > 0:
        yield "wrong best"
    equal = costs[selection.equal]
    if answer is Answer.EQUAL and (loss > ZONE or np.ptp(equal) > ZONE):
        yield "wrong equal"
    if loss > ZONE:
        yield "lost"


COLUMNS = ("right", "best", "wrong best", "equal", "wrong equal", "undecided", "lost")


def row_of(
    way: Callable[[Machine, Candidates], Result],
    surface: Numbers,
    points: int,
    truth: Truth,
    noise: Noise,
    *,
    sweeps: int,
) -> tuple[list[str], float, float]:
    """Cells of a row, and the launches and seconds of a sweep."""
    rng = np.random.default_rng(0)
    marks: Counter[str] = Counter()
    launches, seconds = 0, 0.0
    for _ in range(sweeps):
        costs = costs_of(surface, points, truth, rng)
        everything = np.ones(points, dtype=np.bool_)
        candidates = Candidates(
            counts=np.zeros(points, dtype=np.intp),
            is_met=everything,
            is_likely=everything,
            prices=rng.choice([1.0, 2.0, 4.0, 8.0], size=(points, 1)),
        )
        result = way(Machine(costs, noise, np.random.default_rng(rng.integers(2**32))), candidates)
        marks.update(judged(result, costs))
        launches += result.launches
        seconds += result.seconds
    return [f"{marks[name] / sweeps:.0%}" for name in COLUMNS], launches / sweeps, seconds / sweeps


def grid_of(launches: int) -> Callable[[Machine, Candidates], Result]:
    """Way of measuring: a grid."""

    def way(machine: Machine, candidates: Candidates) -> Result:
        return gridded(machine, candidates, launches=launches)

    return way


def _ways(noise: Noise) -> dict[str, Callable[[Machine, Candidates], Result]]:
    ways = {f"grid of {count}": grid_of(count) for count in GRIDS} | {"settled": settled}
    return ways | ({"in turn": in_turn} if noise.kind == "recorded" else {})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--points", type=int, nargs="+", default=[6, 24, 60])
    parser.add_argument("--job", choices=JOBS, default="bert")
    arguments = parser.parse_args()
    surface = surfaces()[arguments.job]
    rows = []
    for truth, points, noise in itertools.product(TRUTHS, arguments.points, NOISES):
        found = {
            name: row_of(way, surface, points, truth, noise, sweeps=arguments.sweeps)
            for name, way in _ways(noise).items()
        }
        _, most, longest = found[f"grid of {GRIDS[-1]}"]
        label = f"{noise.sigma:.1%} {noise.kind}"
        for name, (cells, launches, seconds) in found.items():
            shares = [f"{launches / most:.0%}", f"{seconds / longest:.0%}"]
            rows.append([truth.name, str(points), label, name, *cells, *shares])
    print(heading(f"settled questions beside grids ({arguments.job})"))
    header = ["truth", "points", "launches differ by", "way", *COLUMNS, "launches", "time"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
