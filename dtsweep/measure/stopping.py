"""The rule by which a window ends: limits, the precision that is asked for, and the race."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.measure.statistics import Series, mean_half_width, over_periods, with_unseen
from dtsweep.measure.warmup import Steadiness, steadiness
from dtsweep.sweep.settings import Measure

FIRST_LOOK = 30
FIRST_RACE_LOOK = 15
LOOK_FACTOR = 1.2
"""Steps before the first look at the interval, and the factor to the next look.

A rule that looks at every step stops by luck.
"""

LONG_STEP_S, FIRST_LONG_LOOK = 0.3, 8
"""Step time above which a check costs next to nothing, and the steps before the first check."""

FEWEST_STEPS, FEWEST_PERIODS = 20, 8
"""Least steady steps and sync periods of a valid interval before a limit ends the window.

Of long steps as many as before the first look.
"""

RACE_MARGIN = 0.02
RACE_HALF_WIDTH = 0.10
"""Margin of dominance for an early stop, and the precision that the mean needs by then."""

REHEARSED_STEPS = 50
"""Enough for every part of a look."""

LIMITS = ("max_steps", "max_seconds")
"""The maxima that end a window.

What is known by then is judged with the steps of all ranks, in the row's columns.
"""

AFTER, AFTER_S = 0.5, 5.0
"""Limits of rounds after a window with `exchange="precise"`.

A share of `max_seconds`, and no longer than the window or these seconds, whichever is more.
"""

WINDOWS = 3
"""Windows of a trial at most: one in which something was compiled is measured again."""

Incumbents = Sequence[tuple[float, float]]
"""Measured points: latency in seconds, samples per second."""


@dataclass(frozen=True, kw_only=True)
class Race:
    """Points that must not dominate a point, and the way to compare them."""

    rivals: Incumbents
    samples_per_step: float
    """Samples of all workers behind one step of one of them."""
    latency_is_mean: bool = False
    """True if the point's latency is its mean step instead of the median one."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The step time of a window's steady part, and how well it is known."""

    mean_s: float
    median_s: float
    noise_s: float
    """Half of the mean's 95 % interval by the steps that came."""
    half_width_s: float
    """Half-width as it is reported, with rare pauses that have not come yet."""
    steadiness: Steadiness
    periods: int
    """Steady ones; steps, where the period is 1."""


def estimate(series: Series, period: int) -> Estimate | None:
    """Estimate the step time; None while there is too little of a steady part for an interval.

    Args:
        series: (steps,) seconds of the window's steps so far.
        period: steps after which the pattern of work repeats: mean and interval are those of whole
            periods.
    """
    means = over_periods(series, period)
    steady_state = steadiness(means)
    start = steady_state.start or 0
    steady = means[start:]
    noise_s = mean_half_width(steady)
    if noise_s is None:
        return None
    mean_s = float(steady.mean())
    return Estimate(
        mean_s=mean_s,
        median_s=float(np.median(series[start * period :])),
        noise_s=noise_s,
        half_width_s=with_unseen(noise_s, mean_s=mean_s, steps=len(steady) * period),
        steadiness=steady_state,
        periods=len(steady),
    )


def is_precise(step_time: Estimate, *, within: float, counts_unseen: bool = True) -> bool:
    """True if the mean step time is known to `within`, a share of it, a drift counted.

    Args:
        step_time: of a window.
        within: half of the 95 % interval that is wanted.
        counts_unseen: whether rare events that have not come yet count; not where a point is
            compared with itself.
    """
    if counts_unseen:
        half_s = step_time.half_width_s
    else:
        half_s = step_time.noise_s
    share = step_time.steadiness.widen(half_s / step_time.mean_s, within=within)
    return share is not None and share <= within


def is_dominated(step_time: Estimate, race: Race) -> bool:
    """True if a rival is clearly better in latency and rate than these steps at their best."""
    # While steps still get faster, the best is yet to come. Rare events that have not come yet make
    # no point better.
    steady_state = step_time.steadiness
    is_known = step_time.noise_s <= RACE_HALF_WIDTH * step_time.mean_s
    gets_faster = (steady_state.drift or 0.0) <= -RACE_MARGIN
    if not is_known or steady_state.unsettled > RACE_MARGIN or gets_faster:
        return False
    latency_s = step_time.median_s
    if race.latency_is_mean:
        latency_s = step_time.mean_s
    latency_s -= 2 * step_time.noise_s
    rate = race.samples_per_step / (step_time.mean_s - 2 * step_time.noise_s)
    better = 1 + RACE_MARGIN
    return any(
        rival_s * better <= latency_s and rivals_rate >= rate * better
        for rival_s, rivals_rate in race.rivals
    )


class Rule:
    """Decides for one window; sees its steps at every look."""

    def __init__(
        self,
        measure: Measure,
        *,
        period: int = 1,
        period_s: float = 0.0,
        race: Race | None = None,
        counts_unseen: bool = True,
    ) -> None:
        """Begin a window.

        Args:
            measure: the wanted half-width and the limits.
            period: steps after which the pattern of work repeats.
            period_s: how long a period of steps took in the warm-up: the same number on all ranks;
                0 is unknown.
            race: where a point that is clearly dominated stops early.
            counts_unseen: as in `is_precise`.
        """
        self._measure = measure
        self.period = period
        self.period_s = period_s
        self._race = race
        self._counts_unseen = counts_unseen
        if period_s / period > LONG_STEP_S:
            self._first = FIRST_LONG_LOOK
        else:
            self._first = FIRST_LOOK
        self._first_race = min(FIRST_RACE_LOOK, self._first)

    def rehearse(self) -> None:
        """Perform one look in advance.

        The first look imports modules, which must not happen in the window.
        """
        # Of so few steps: as many as the window asks for can be millions.
        brief = Rule(
            replace(self._measure, min_steps=1), race=self._race, counts_unseen=self._counts_unseen
        )
        brief.look(np.ones(REHEARSED_STEPS), seconds=math.inf)

    def next_look(self, steps: int) -> int:
        """Next step after `steps` at which the interval is looked at: a multiple of the period."""
        if self._race is None:
            first = self._first
        else:
            first = self._first_race
        look = float(first if self.period == 1 else max(first, FEWEST_PERIODS * self.period))
        while (at := math.ceil(look / self.period) * self.period) <= steps:
            look *= LOOK_FACTOR
        return at

    def limit(self, *, steps: int, seconds: float) -> str | None:
        """Name the limit that is reached, or None.

        Limits are the maxima, and a sufficient length without a wanted half-width.
        """
        measure = self._measure
        if steps >= measure.max_steps:
            return "max_steps"
        if seconds >= measure.max_seconds:
            return "max_seconds"
        is_long = steps >= measure.min_steps and seconds >= measure.min_seconds
        if measure.half_width is None and is_long:
            return "enough"
        return None

    def look(self, series: Series, *, seconds: float) -> str | None:
        """Say why the window ends now, by what its steps show, or None.

        Args:
            series: (steps,) seconds of the window's steps so far.
            seconds: since its start.
        """
        measure = self._measure
        steps = len(series)
        is_long = steps >= max(measure.min_steps, self._first) and seconds >= measure.min_seconds
        within = None
        if is_long:
            within = measure.half_width
        race = None
        if steps >= self._first_race:
            race = self._race
        step_time = None
        if race or within is not None:
            step_time = estimate(series, self.period)
        if step_time is None:
            return None
        can_lose = step_time.periods * self.period >= self._first_race
        if race and can_lose and is_dominated(step_time, race):
            return "dominated"
        if self.period == 1:
            enough = min(FEWEST_STEPS, self._first)
        else:
            enough = FEWEST_PERIODS
        has_enough = step_time.periods >= enough
        if within is not None and has_enough and is_precise(step_time, within=within):
            return "precise"
        return None
