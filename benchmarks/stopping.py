"""When may a window end? dtsweep's rule beside fixed windows, AdaptDL's and nvbench's, on made and on real step times.

Every rule is played the same step times, from a job's first step on, and says after how many of them it ends, which
mean it then gives, and with which 95 % interval:

- dtsweep: `dtsweep.measure.stopping.Rule` for a half-width of 2 %, after the hard skip, with no minimum of seconds.
  The mean is that of the steady part and the interval `reported_half_width`, as in `dtsweep/metrics/summary.py`.
- fixed: 10 steps left out, 50 measured.
- AdaptDL: 5 steps left out, 16 measured, as in the traces that it publishes.
- nvbench: its `stdrel` criterion, <https://github.com/NVIDIA/nvbench>, as `nvbench/detail/stdrel_criterion.cxx` has
  it: one step left out; from the 10th on it ends after the step that brings the noise, standard deviation by mean of
  all steps so far, below 0.5 %, or when the noise has settled. That is asked at every 16th step once there are more
  than 64 values of it: the last 512 lie within 5 % of the latest one (root mean square). Its least time is left out.

The last three give no interval of the mean; theirs is Student's t for independent steps. All end at 1000 measured
steps at the latest. Steps are counted with those that are left out.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from benchmarks.log_entry import heading, table
from dtsweep import Measure
from dtsweep.measure.statistics import Series, reported_half_width
from dtsweep.measure.stopping import Rule
from dtsweep.measure.warmup import steady_from

MEASURE = Measure(min_seconds=0)
"""Half-width 2 %, a hard skip of 3 steps, at most 1000 steps."""

WRONG = 0.02
"""From which share of the truth on a mean is wrong."""

NOISE, SETTLED, NOISES, LEAST_SAMPLES = 0.005, 0.05, 512, 10
"""nvbench's `max-noise`, when its noise has settled, how many values of it are kept, and its `min-samples`."""

TRUTH_FROM = 40
"""Steps left out of a real series for its true mean: by then all of them are steady."""


class Stopped(NamedTuple):
    """What a rule makes of a series."""

    steps: int
    """That it took, with those left out."""
    mean: float
    half_width: float
    """Of the mean's 95 % interval, in seconds."""


def by_dtsweep(series: Series) -> Stopped:
    """Look where and as dtsweep looks."""
    window = series[MEASURE.warmup_steps :][: MEASURE.max_steps]
    rule, steps = Rule(MEASURE), 0
    while steps < len(window):
        steps = min(rule.next_look(steps), len(window))
        if rule.look(window[:steps], seconds=float(window[:steps].sum())):
            break
    steady = window[:steps][steady_from(window[:steps]) or 0 :]
    half = reported_half_width(steady)
    return Stopped(MEASURE.warmup_steps + steps, float(steady.mean()), math.nan if half is None else half)


def by_fixed(series: Series, *, skipped: int, measured: int) -> Stopped:
    """Always end after the same steps."""
    return independent(series[skipped : skipped + measured], skipped=skipped)


def by_nvbench(series: Series) -> Stopped:
    """End when the noise is low, or does not change any more."""
    window = series[1:][: MEASURE.max_steps]
    counts = np.arange(1, len(window) + 1)
    means = np.cumsum(window) / counts
    # Around the first step, so that no digits are lost.
    sums, squares = np.cumsum(window - window[0]), np.cumsum((window - window[0]) ** 2)
    deviations = np.sqrt(np.maximum(squares - sums**2 / counts, 0.0) / np.maximum(counts - 1, 1))
    # There is no noise of fewer than 5 steps.
    noises = (deviations / means)[4:]
    for count in range(LEAST_SAMPLES, len(window) + 1):
        known = noises[max(0, count - 4 - NOISES) : count - 4]
        if known[-1] < NOISE or (count % 16 == 0 and len(known) > 64 and has_settled(known)):
            return independent(window[:count], skipped=1)
    return independent(window, skipped=1)


def has_settled(noises: Series) -> bool:
    """Whether the noises lie close to the latest of them."""
    away = math.sqrt(float(np.sum((noises - noises[-1]) ** 2)) / (len(noises) - 1))
    return away < SETTLED * float(noises[-1])


def independent(steps: Series, *, skipped: int) -> Stopped:
    """The mean of steps that are taken for independent."""
    half = stats.t.ppf(0.975, len(steps) - 1) * steps.std(ddof=1) / math.sqrt(len(steps))
    return Stopped(skipped + len(steps), float(steps.mean()), float(half))


RULES: Mapping[str, Callable[[Series], Stopped]] = {
    "dtsweep": by_dtsweep,
    "fixed 10+50": partial(by_fixed, skipped=10, measured=50),
    "AdaptDL 5+16": partial(by_fixed, skipped=5, measured=16),
    "nvbench": by_nvbench,
}
"""By name."""


def noisy(random: np.random.Generator, size: tuple[int, int], *, cv: float, rho: float = 0.0) -> NDArray[np.float64]:
    """Steps of mean 1 s; each remembers `rho` of the one before."""
    drawn = random.normal(size=size)
    drawn[:, 1:] *= math.sqrt(1 - rho**2)
    series: NDArray[np.float64] = 1 + cv * signal.lfilter([1.0], [1.0, -rho], drawn, axis=1)
    return series


def spiky(random: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """Three steps of a hundred take half as long again."""
    return noisy(random, size, cv=0.02) * (1 + 0.5 * (random.random(size) < 0.03))


def warming(random: np.random.Generator, size: tuple[int, int], *, slower: float, tau: float) -> NDArray[np.float64]:
    """The first step takes this share longer; after `tau` steps a 2.7th of that is left."""
    return noisy(random, size, cv=0.02) * (1 + slower * np.exp(-np.arange(size[1]) / tau))


def pausing(random: np.random.Generator, size: tuple[int, int]) -> NDArray[np.float64]:
    """Every 50th step takes half as long again; which is the first of them is drawn."""
    pauses: NDArray[np.bool_] = (np.arange(size[1]) + random.integers(50, size=(size[0], 1))) % 50 == 0
    return noisy(random, size, cv=0.01) * (1 + 0.5 * pauses)


REGIMES: Mapping[str, tuple[Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]], float]] = {
    "cv 1 %": (partial(noisy, cv=0.01), 1.0),
    "cv 5 %": (partial(noisy, cv=0.05), 1.0),
    "AR(1) 0.5, cv 5 %": (partial(noisy, cv=0.05, rho=0.5), 1.0),
    "AR(1) 0.8, cv 3 %": (partial(noisy, cv=0.03, rho=0.8), 1.0),
    "cv 2 %, 3 % of steps +50 %": (spiky, 1.015),
    "cv 2 %, warm-up +50 %, τ 10": (partial(warming, slower=0.5, tau=10), 1.0),
    "cv 2 %, warm-up +30 %, τ 30": (partial(warming, slower=0.3, tau=30), 1.0),
    "cv 1 %, each 50th step +50 %": (pausing, 1.01),
}
"""By name: how step times are drawn, and their true mean."""


def simulated(repetitions: int) -> list[list[str]]:
    """A row for each regime: how often the interval covers, steps, and how often the mean is wrong."""
    rows, all_steps = [], defaultdict(list)
    size = (repetitions, MEASURE.warmup_steps + MEASURE.max_steps)
    for number, (regime, (draw, truth)) in enumerate(REGIMES.items()):
        series, cells = draw(np.random.default_rng(number), size), [regime]
        for name, rule in RULES.items():
            steps, means, halves = np.array([rule(one) for one in series]).T
            away = np.abs(means - truth)
            all_steps[name].append(steps.mean())
            cells.append(f"{np.mean(away <= halves):.2f} / {steps.mean():.0f} / {np.mean(away > WRONG * truth):.3f}")
        rows.append(cells)
    return [*rows, ["mean of all", *(f"{np.mean(all_steps[name]):.0f}" for name in RULES)]]


def replayed(folder: Path) -> list[list[str]]:
    """A row for each kind of job: how often the interval covers, steps, and how far the mean is from the truth."""
    kinds = defaultdict(list)
    for path in sorted(folder.glob("*.npy")):
        kinds[path.stem.rsplit("_", 1)[0]].append(np.load(path))
    everything = [series for group in kinds.values() for series in group]
    return [[f"{kind}, {len(group)}", *replay(group)] for kind, group in [*kinds.items(), ("all", everything)]]


def replay(group: Sequence[Series]) -> list[str]:
    """A cell for each rule."""
    cells = []
    truths = np.array([series[TRUTH_FROM:].mean() for series in group])
    for rule in RULES.values():
        steps, means, halves = np.array([rule(series) for series in group]).T
        away = np.abs(means - truths)
        cells.append(f"{(away <= halves).sum()} / {steps.mean():.0f} / {np.mean(away / truths) * 100:.1f} %")
    return cells


def main() -> None:
    """Play the series to the rules and print an entry for docs/log.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stopping", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=300, help="series of each regime (default 300)")
    options = parser.parse_args()
    print(heading("When may a window end?"), end="\n\n")
    note = f"{options.repetitions} series each. How often the interval covers the true mean / mean steps / how often"
    note += f" the mean is off by more than {WRONG * 100:.0f} %."
    print(table(["step times", *RULES], simulated(options.repetitions)), note, sep="\n\n", end="\n\n")
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    if not folder.is_dir():
        print("Real step times: not played, DTSWEEP_TEST_DATA names no folder with step_series.")
        return
    note = "Real step times. In how many series the interval covers the true mean, that of all steps but the first"
    note += f" {TRUTH_FROM} / mean steps / mean distance of the mean from it."
    print(table(["job, series", *RULES], replayed(folder)), note, sep="\n\n")


if __name__ == "__main__":
    main()
