"""Rules that end a window: dtsweep's, fixed windows, AdaptDL's and nvbench's.

They are compared on simulated and on real step times.

Every rule is played the same step times, from a job's first step on, and says after how many of
them it ends, which mean it then gives, and with which 95 % interval:

- dtsweep: a window as it is shipped, `Window` with its `Rule` and all limits of `Measure()`, on a
  clock that the steps move on, and the columns that `trial_columns` makes of it. A window whose
  mean has no interval, since its steps still drift (it is flagged), is no miss; the tables say how
  many these are.
- fixed: 10 steps left out, 50 measured.
- AdaptDL: 5 steps left out, 16 measured, as in the traces that it publishes.
- nvbench: its `stdrel` criterion, <https://github.com/NVIDIA/nvbench>, as
  `nvbench/detail/stdrel_criterion.cxx` has it: one step left out; from the 10th on it ends after
  the step that brings the noise, standard deviation by mean of all steps so far, below 0.5 %, or
  when the noise has settled. That is asked at every 16th step once there are more than 64 values of
  it: the last 512 lie within 5 % of the latest one (root mean square). Its least time is left out.

The last three give no interval of the mean; theirs is Student's t for independent steps. They end
at 1000 measured steps at the latest. Steps are counted with those that are left out.

What changes more slowly than a window lasts can't be seen in it. Such step times are played on
after the window, as blocks of steps in turn with others that are left out: what a synchronous trial
does to see what its exchange costs.

`--check` plays kinds of noise that the rule was not made with, other seeds, and steps of 300 ms.
`--events` plays pauses, level shifts and drifts.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from benchmarks.log_entry import heading, table
from dtsweep import Measure, Point
from dtsweep.measure.statistics import Series
from dtsweep.measure.stopping import Rule
from dtsweep.measure.window import Window
from dtsweep.metrics.rank_result import Measured
from dtsweep.metrics.summary import trial_columns
from dtsweep.metrics.window_view import mark_warmup

MEASURE = Measure(repeats=1)
"""As shipped: half-width 2 %, a hard skip of 3 steps, 1 to 60 s, 20 to 1000 steps."""

STEP_S, CHECK_STEP_S = (0.005, 0.05, 1.0, 2.0), (0.005, 0.05, 0.3, 1.0, 2.0)
"""How long a step is, in seconds."""

LOOK_S = 0.001
"""What a look takes."""

BLOCKS, BLOCK_STEPS = 12, 4
"""Number of blocks after the window that are compared with it, and steps of a block.

As many steps between the blocks are not compared.
"""

WRONG = 0.02
"""From which share of the truth on a mean is wrong."""

NOISE, SETTLED, NOISES, LEAST_SAMPLES = 0.005, 0.05, 512, 10
"""nvbench's `max-noise`, the spread of settled noise, the values kept of it, and `min-samples`."""

TRUTH_FROM = 40
"""Steps left out of a real series for its true mean: by then all of them are steady."""

STARTS = 20
"""Windows that begin somewhere in the first half of a real series."""


class Stopped(NamedTuple):
    """What a rule makes of a series."""

    steps: int
    """That it took, with those left out."""
    mean: float
    half_width: float
    """Of the mean's 95 % interval, in seconds; infinite where there is none."""
    is_precise: bool = True
    is_unstable: bool = False


def by_dtsweep(series: Series, period: int = 1) -> Stopped:
    """Measure a window as dtsweep does; what the series has beyond it may come after the window."""
    skipped = math.ceil(MEASURE.warmup_steps / period) * period
    steps, reason = window_of(series, skipped=skipped, period=period)
    used, later = skipped + steps, BLOCKS * 2 * BLOCK_STEPS
    seconds = series[: used + later]
    parts = np.repeat(["warmup", "window", "exchange"], [skipped, steps, len(seconds) - used])
    blocks = np.where(parts == "exchange", (np.arange(len(seconds)) - used) // BLOCK_STEPS, -1)
    measured = Measured(
        steps={
            "part": np.where(
                blocks % 2 == 0, parts, np.where(parts == "exchange", "no_exchange", parts)
            ),
            "block": blocks,
            "step_s": seconds,
            "start_s": np.cumsum(seconds) - seconds - seconds[:skipped].sum(),
            "loss": np.zeros(len(seconds)),
        },
        window_s=float(series[skipped:used].sum()),
        window_steps=steps,
        skipped_steps=skipped,
        stop_reason=reason,
        memory_peak_bytes=0,
    )
    point = Point(sync="local_sgd", sync_period=period) if period > 1 else Point()
    row = trial_columns(
        point, mark_warmup(point, [measured]), nodes=["one"], wanted=MEASURE.half_width
    )
    half = math.inf if row["half_width"] is None else row["half_width"] * row["step_mean_s"]
    return Stopped(
        used, row["step_mean_s"], half, row["stop_reason"] == "precise", "unstable" in row["flags"]
    )


def window_of(series: Series, *, skipped: int, period: int) -> tuple[int, str]:
    """Step through a window on a clock that the steps advance: their number, and why it ended."""
    now, done, window = 0.0, 0, series[skipped:]
    measure = replace(MEASURE, max_steps=min(MEASURE.max_steps, len(window)))

    def so_far() -> Series:
        nonlocal now
        now += LOOK_S
        return window[:done]

    period_s = float(np.median(series[:skipped].reshape(-1, period).sum(axis=1)))
    rule = Rule(measure, period=period, period_s=period_s)
    steps = Window(measure, rule, so_far, now=lambda: now)
    for step in steps:
        now, done = now + float(window[step]), step + 1
    return steps.steps, steps.reason


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
    """True if the noises lie close to the latest of them."""
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

FrontierProbability = NDArray[np.float64]
"""(series, steps); a step takes about 1."""

Size = tuple[int, int]


def noisy(
    random: np.random.Generator, size: Size, *, cv: float, rho: float = 0.0
) -> FrontierProbability:
    """Steps of mean 1; each remembers `rho` of the one before."""
    drawn = random.normal(size=size)
    drawn[:, 1:] *= math.sqrt(1 - rho**2)
    series: FrontierProbability = 1 + cv * signal.lfilter([1.0], [1.0, -rho], drawn, axis=1)
    return series


def spiky(
    random: np.random.Generator, size: Size, *, share: float, longer: float
) -> FrontierProbability:
    """So large a share of the steps takes so much longer."""
    return noisy(random, size, cv=0.02) * (1 + longer * (random.random(size) < share))


def warming(
    random: np.random.Generator, size: Size, *, slower: float, tau: float
) -> FrontierProbability:
    """The first step takes this share longer; after `tau` steps a 2.7th of that is left."""
    return noisy(random, size, cv=0.02) * (1 + slower * np.exp(-np.arange(size[1]) / tau))


def pausing(
    random: np.random.Generator, size: Size, *, every: int, longer: float
) -> FrontierProbability:
    """Every so many steps one takes so much longer; which is the first of them is drawn."""
    pauses: NDArray[np.bool_] = (
        np.arange(size[1]) + random.integers(every, size=(size[0], 1))
    ) % every == 0
    return noisy(random, size, cv=0.01) * (1 + longer * pauses)


def skewed(random: np.random.Generator, size: Size, *, sigma: float) -> FrontierProbability:
    """Lognormal steps."""
    series: FrontierProbability = np.exp(random.normal(-(sigma**2) / 2, sigma, size=size))
    return series


def exchanging(
    random: np.random.Generator, size: Size, *, cv: float, longer: float
) -> FrontierProbability:
    """Every eighth step has an exchange and takes so much longer."""
    series: FrontierProbability = noisy(random, size, cv=cv) * (
        1 + longer * (np.arange(size[1]) % 8 == 7)
    )
    return series


def waving(random: np.random.Generator, size: Size) -> FrontierProbability:
    """A sine of ±3 % with a period of 400 steps."""
    phase = random.random((size[0], 1))
    return noisy(random, size, cv=0.02) * (
        1 + 0.03 * np.sin(2 * np.pi * (np.arange(size[1]) / 400 + phase))
    )


def switching(random: np.random.Generator, size: Size) -> FrontierProbability:
    """Two levels 20 % apart, each for about 150 steps."""
    is_upper = (
        np.cumsum(random.random(size) < 1 / 150, axis=1) + random.integers(2, size=(size[0], 1))
    ) % 2
    return noisy(random, size, cv=0.02) * np.where(is_upper, 1.1, 0.9)


def heavy_tailed(random: np.random.Generator, size: Size) -> FrontierProbability:
    """One step in 200 takes longer by half or more, without a bound (Pareto, 1.5)."""
    return noisy(random, size, cv=0.02) * (
        1 + (random.random(size) < 1 / 200) * 0.5 * (1 + random.pareto(1.5, size))
    )


@dataclass(frozen=True)
class Regime:
    """A kind of step times."""

    draw: Callable[[np.random.Generator, Size], FrontierProbability]
    truth: float = 1.0
    """The mean of all steps, once they are warm."""
    period: int = 1


REGIMES: Mapping[str, Regime] = {
    "cv 1 %": Regime(partial(noisy, cv=0.01)),
    "cv 5 %": Regime(partial(noisy, cv=0.05)),
    "AR(1) 0.5, cv 5 %": Regime(partial(noisy, cv=0.05, rho=0.5)),
    "AR(1) 0.8, cv 3 %": Regime(partial(noisy, cv=0.03, rho=0.8)),
    "cv 2 %, 3 % of steps +50 %": Regime(partial(spiky, share=0.03, longer=0.5), 1.015),
    "cv 2 %, warm-up +50 %, τ 10": Regime(partial(warming, slower=0.5, tau=10)),
    "cv 2 %, warm-up +30 %, τ 30": Regime(partial(warming, slower=0.3, tau=30)),
    "cv 1 %, each 50th step +50 %": Regime(partial(pausing, every=50, longer=0.5), 1.01),
}
"""By name; the rule was made with these."""

CHECKS: Mapping[str, Regime] = {
    "lognormal σ 0.1": Regime(partial(skewed, sigma=0.1)),
    "lognormal σ 0.3": Regime(partial(skewed, sigma=0.3)),
    "AR(1) 0.7, cv 4 %": Regime(partial(noisy, cv=0.04, rho=0.7)),
    "cv 2 %, 5 % of steps +30 %": Regime(partial(spiky, share=0.05, longer=0.3), 1.015),
    "cv 2 %, warm-up +40 %, τ 20": Regime(partial(warming, slower=0.4, tau=20)),
    "cv 1 %, each 37th step +80 %": Regime(partial(pausing, every=37, longer=0.8), 1 + 0.8 / 37),
    "cv 2 %, exchange +60 % each 8th": Regime(
        partial(exchanging, cv=0.02, longer=0.6), 1.075, period=8
    ),
    "cv 10 %, exchange +60 % each 8th": Regime(
        partial(exchanging, cv=0.1, longer=0.6), 1.075, period=8
    ),
}
"""Kept aside when the rule was made."""

SLOW: Mapping[str, Regime] = {
    "cv 2 %, sine ±3 %, 400 steps": Regime(waving),
    "cv 2 %, two levels 20 % apart, 150 steps": Regime(switching),
    "AR(1) 0.95, cv 3 %": Regime(partial(noisy, cv=0.03, rho=0.95)),
    "AR(1) 0.95, cv 5 %": Regime(partial(noisy, cv=0.05, rho=0.95)),
    "cv 2 %, Pareto(1.5) from +50 %, 1 in 200": Regime(heavy_tailed, 1 + 1.5 / 200),
}
"""What one window can't see."""


@dataclass(frozen=True)
class Played:
    """What a rule made of series of one kind; all (series,)."""

    steps: NDArray[np.float64]
    covers: NDArray[np.bool_]
    is_wrong: NDArray[np.bool_]
    has_interval: NDArray[np.bool_]
    is_precise: NDArray[np.bool_]
    is_unstable: NDArray[np.bool_]


def play(rule: Callable[[Series], Stopped], series: FrontierProbability, truth: float) -> Played:
    """Play each series to a rule."""
    stopped = [rule(one) for one in series]
    steps, means, halves = np.array([one[:3] for one in stopped]).T
    away = np.abs(means - truth)
    return Played(
        steps=steps,
        covers=away <= halves,
        is_wrong=away > WRONG * truth,
        has_interval=np.isfinite(halves),
        is_precise=np.array([one.is_precise for one in stopped]),
        is_unstable=np.array([one.is_unstable for one in stopped]),
    )


def drawn(regime: Regime, *, repetitions: int, step_s: float, seed: int) -> FrontierProbability:
    """Series as long as a window can get, with what comes after it."""
    most = min(MEASURE.max_steps, math.ceil(1.5 * MEASURE.max_seconds / step_s))
    steps = max(MEASURE.warmup_steps, regime.period) + most + BLOCKS * 2 * BLOCK_STEPS
    return regime.draw(np.random.default_rng(seed), (repetitions, steps)) * step_s


def share_of(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> str:
    """A share; none is given of less than 20."""
    return f"{which[among].mean():.3f}" if among.sum() >= 20 else "–"


def by_length(
    regimes: Mapping[str, Regime], lengths: Sequence[float], *, repetitions: int, seed: int
) -> str:
    """A table of dtsweep's rule: a row per kind of step times, a column per length of a step."""
    rows: list[list[str]] = []
    of_length: dict[float, list[Played]] = defaultdict(list)
    for number, (name, regime) in enumerate(regimes.items()):
        cells = [name]
        for step_s in lengths:
            series = drawn(regime, repetitions=repetitions, step_s=step_s, seed=seed + number)
            seen = play(partial(by_dtsweep, period=regime.period), series, regime.truth * step_s)
            of_length[step_s].append(seen)
            parts = [f"{seen.covers.mean():.3f}", f"{seen.steps.mean():.0f}"]
            parts += [f"{seen.is_precise.mean():.2f}", share_of(seen.is_wrong, seen.is_precise)]
            cells.append(" / ".join([*parts, f"{1 - seen.has_interval.mean():.2f}"]))
        rows.append(cells)
    last = ["all"]
    for played in of_length.values():
        precise, wrong = (
            np.concatenate([getattr(p, name) for p in played])
            for name in ("is_precise", "is_wrong")
        )
        worst, steps = (
            min(p.covers.mean() for p in played),
            np.mean([p.steps.mean() for p in played]),
        )
        last.append(
            f"≥ {worst:.3f} / {steps:.0f} / {precise.mean():.2f} / {share_of(wrong, precise)} /"
        )
    return table(["step times", *map(length, lengths)], [*rows, last])


def length(step_s: float) -> str:
    """Name the length of a step."""
    return f"{step_s:g} s" if step_s >= 1 else f"{step_s * 1e3:g} ms"


def beside_others(step_s: float, *, repetitions: int) -> str:
    """A table of all rules: coverage of the interval, steps, and the share of wrong means."""
    rows: list[list[str]] = []
    all_steps: dict[str, list[float]] = defaultdict(list)
    for number, (name, regime) in enumerate(REGIMES.items()):
        series, cells = drawn(regime, repetitions=repetitions, step_s=step_s, seed=number), [name]
        for rule, stop in RULES.items():
            seen = play(stop, series, regime.truth * step_s)
            all_steps[rule].append(seen.steps.mean())
            cells.append(
                f"{seen.covers.mean():.2f} / {seen.steps.mean():.0f} / {seen.is_wrong.mean():.3f}"
            )
        rows.append(cells)
    return table(
        ["step times", *RULES],
        [*rows, ["mean of all", *(f"{np.mean(all_steps[rule]):.0f}" for rule in RULES)]],
    )


def caught_later(*, repetitions: int) -> str:
    """A table of how many windows are flagged `unstable`, of all and of those with a wrong mean."""
    rows = []
    for number, (name, regime) in enumerate({**SLOW, **REGIMES}.items()):
        cells = [name]
        for step_s in STEP_S:
            series = drawn(regime, repetitions=repetitions, step_s=step_s, seed=number)
            seen = play(by_dtsweep, series, regime.truth * step_s)
            parts = [
                f"{part.mean():.2f}" for part in (seen.covers, seen.is_wrong, seen.is_unstable)
            ]
            cells.append(" / ".join([*parts, share_of(seen.is_unstable, seen.is_wrong)]))
        rows.append(cells)
    return table(["step times", *map(length, STEP_S)], rows)


def replayed(folder: Path) -> str:
    """A table of real step times: coverage of the interval, steps, and the error of the mean."""
    kinds: dict[str, list[Series]] = defaultdict(list)
    for path in sorted(folder.glob("*.npy")):
        kinds[path.stem.rsplit("_", 1)[0]].append(np.load(path))
    everything = [series for group in kinds.values() for series in group]
    rows = []
    for kind, group in [*kinds.items(), ("all", everything)]:
        cells = [replay(rule, group, starts=[0]) for rule in RULES.values()]
        rows.append(
            [
                f"{kind}, {len(group)}",
                *cells,
                replay(by_dtsweep, group, starts=range(1, STARTS + 1)),
            ]
        )
    return table(["job, series", *RULES, f"dtsweep, {STARTS} starts each"], rows)


def replay(
    rule: Callable[[Series], Stopped], group: Sequence[Series], *, starts: Sequence[int]
) -> str:
    """A cell of a rule that begins at each series' first step, or somewhere in its first half.

    A start of 0 means the first step; others are seeds.
    """
    seen, distances = [], []
    for series in group:
        truth = float(series[TRUTH_FROM:].mean())
        for start in starts:
            begin = int(np.random.default_rng(start).integers(len(series) // 2)) if start else 0
            stopped = rule(series[begin:])
            distances.append(abs(stopped.mean - truth) / truth)
            seen.append((abs(stopped.mean - truth) <= stopped.half_width, stopped.steps))
    covers, steps = np.mean(seen, axis=0)
    away = np.array(distances)
    return f"{covers:.2f} / {steps:.0f} / {away.mean() * 100:.1f} % / {np.mean(away > WRONG):.2f}"


# Single events, which may fall into a window or not.


class Event(NamedTuple):
    """Step times with one event, as shares of a step, and what is known of them."""

    steps: Series
    truth: float
    """Mean of many steps."""
    contains: Callable[[int], bool]
    """Tell from the number of steps until the end of a window whether it contains the event."""


def pause(random: np.random.Generator, steps: int) -> Event:
    """Every 200th step takes 20 steps more."""
    first = int(random.integers(200))
    pauses = np.arange(steps) % 200 == first
    series = noisy(random, (1, steps), cv=0.01)[0] + 20 * pauses
    places = np.flatnonzero(pauses)
    begin = MEASURE.warmup_steps
    return Event(series, 1.1, lambda end: bool(((places >= begin) & (places < end)).any()))


def shift(random: np.random.Generator, steps: int) -> Event:
    """Steps are 25 % longer from one of the steps 40 to 400 on."""
    at = int(random.integers(40, 400))
    longer = np.where(np.arange(steps) >= at, 1.25, 1.0)
    return Event(noisy(random, (1, steps), cv=0.01)[0] * longer, 1.25, lambda end: end > at)


def slow_start(random: np.random.Generator, steps: int) -> Event:
    """The first 120 steps are 15 % longer."""
    longer = np.where(np.arange(steps) < 120, 1.15, 1.0)
    return Event(noisy(random, (1, steps), cv=0.01)[0] * longer, 1.0, lambda end: end > 120)


def drift(random: np.random.Generator, steps: int) -> Event:
    """Each step is 0.005 % of the first longer than the one before, for 1000 steps.

    A window contains it if the drift over its steps is larger than what it is known to.
    """
    longer = 1 + 0.05 * np.arange(steps) / 1000
    series = noisy(random, (1, steps), cv=0.01)[0] * longer
    return Event(series, 1.025, lambda end: 0.05 * end / 1000 > WRONG)


EVENTS = {
    "every 200th step takes 20 steps more": pause,
    "25 % longer from a step between 40 and 400 on": shift,
    "the first 120 steps 15 % longer": slow_start,
    "5 % longer over 1000 steps": drift,
}


EVENT_STEPS_S = (0.0005, 0.005, 0.05, 2.0)
"""Lengths of a step with events, in seconds."""


def with_events(*, repetitions: int) -> str:
    """A table of windows with events: how many contain one, and how many are precise and wrong."""
    rows = []
    for number, (name, draw) in enumerate(EVENTS.items()):
        cells = [name]
        for step_s in EVENT_STEPS_S:
            random = np.random.default_rng(number)
            seen = []
            for _ in range(repetitions):
                event = draw(random, MEASURE.warmup_steps + 1000 + BLOCKS * 2 * BLOCK_STEPS)
                stopped = by_dtsweep(event.steps * step_s)
                is_off = abs(stopped.mean / step_s - event.truth) > WRONG * event.truth
                seen.append((event.contains(stopped.steps), stopped.is_precise and is_off))
            contains, is_wrong = np.array(seen).T
            wrong = f"{is_wrong[contains].mean():.3f}" if contains.any() else "–"
            cells.append(f"{contains.mean():.2f} / {wrong} / {is_wrong.mean():.3f}")
        rows.append(cells)
    return table(["step times", *map(length, EVENT_STEPS_S)], rows)


OF_AN_EVENT = (
    "How many windows contain the event / how many of these end `precise` with a mean that is off "
    "by more than 2 % / how many of all windows do."
)
OF_A_CELL = (
    "How often the interval covers the true mean or there is none (the steps drift, which is "
    "flagged) / mean steps / how many end `precise` / how many of these have a mean that is off by "
    "more than 2 % / how many have no interval."
)
OF_A_RULE = (
    "How often the interval covers the true mean / mean steps / "
    "how often the mean is off by more than 2 %."
)
OF_LATER = (
    "How often the interval covers the true mean or there is none / how often the mean is off by "
    f"more than 2 % / how often the window is flagged `unstable`, by {BLOCKS} blocks of "
    f"{BLOCK_STEPS} steps after it / how many of the wrong ones are."
)
OF_REAL = (
    "Real step times. How often the interval covers the true mean, that of all steps but the first "
    f"{TRUTH_FROM} / mean steps / mean distance of the mean from it / how often that is over 2 %."
)


def tables(repetitions: int, *, check: bool, events: bool) -> Iterator[str]:
    """Yield the tables, each with what stands in its cells."""
    count = f"{repetitions} series each."
    if events:
        yield with_events(repetitions=repetitions) + f"\n\n{count} {OF_AN_EVENT}"
        return
    if check:
        yield (
            by_length(CHECKS, CHECK_STEP_S, repetitions=repetitions, seed=1000)
            + f"\n\n{count} {OF_A_CELL}"
        )
        return
    yield by_length(REGIMES, STEP_S, repetitions=repetitions, seed=0) + f"\n\n{count} {OF_A_CELL}"
    yield beside_others(0.05, repetitions=repetitions) + f"\n\n{count} Steps of 50 ms. {OF_A_RULE}"
    yield caught_later(repetitions=repetitions) + f"\n\n{count} {OF_LATER}"
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    if folder.is_dir():
        yield replayed(folder) + f"\n\n{OF_REAL}"
    else:
        yield "Real step times: not played, DTSWEEP_TEST_DATA names no folder with step_series."


def main() -> None:
    """Play the series to the rules and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stopping", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--repetitions", type=int, default=300, help="series of each kind (default 300)"
    )
    parser.add_argument(
        "--check", action="store_true", help="kinds of noise that the rule was not made with, alone"
    )
    parser.add_argument(
        "--events", action="store_true", help="pauses, shifts and drifts in a window, alone"
    )
    options = parser.parse_args()
    print(
        heading("When may a window end?"),
        *tables(options.repetitions, check=options.check, events=options.events),
        sep="\n\n",
    )


if __name__ == "__main__":
    main()
