"""The rule by which a window ends: limits, and the precision that is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.measure.statistics import Series, mean_half_width, over_periods, with_unseen
from dtsweep.measure.warmup import Steadiness, steadiness
from dtsweep.sweep.settings import Measure

_FIRST_LOOK = 30
_LOOK_FACTOR = 1.2
"""Steps before the first look at the interval, and the factor to the next look.

A rule that looks at every step stops by luck.
"""

LONG_STEP_S, FIRST_LONG_LOOK = 0.3, 8
"""Step time above which a check costs next to nothing, and the steps before the first check."""

FEWEST_STEPS, FEWEST_PERIODS = 20, 8
"""Least steady steps and sync periods of a valid interval before a limit ends the window.

Of long steps as many as before the first look.
"""

_REHEARSED_STEPS = 50
"""Enough for every part of a look."""

LEAST_STEPS = 5
"""Steps that a window or a turn has, whatever `max_seconds` says; or a sync period, if longer."""

FEWEST_MEASURED = 3
"""Least steps of a window that has numbers, where even `_LONGEST_S` was too short for more."""

_LONGEST_S = 600.0
"""Limit of a window without its least steps, in seconds; `max_seconds`, where that is more."""

LIMITS = ("max_steps", "max_seconds")
"""The maxima that end a window.

What is known by then is judged with the steps of all ranks, in the row's columns.
"""

AFTER, AFTER_S = 0.5, 5.0
"""Limits of rounds after a window with `exchange="precise"`.

A share of `max_seconds`, and no longer than the window or these seconds, whichever is more.
"""

WINDOWS = 3
"""Windows of a trial at most.

One in which something was compiled, or speeds moved that samples were dealt by, is measured again.
"""


@dataclass(frozen=True, kw_only=True)
class _Estimate:
    """The step time of a window's steady part, and how well it is known."""

    mean_s: float
    half_width_s: float
    """Half of the mean's 95 % interval as it is reported, with rare pauses yet to come."""
    steadiness: Steadiness
    periods: int
    """Steady ones; steps, where the period is 1."""


def estimate(series: Series, period: int) -> _Estimate | None:
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
    return _Estimate(
        mean_s=mean_s,
        half_width_s=with_unseen(noise_s, mean_s=mean_s, steps=len(steady) * period),
        steadiness=steady_state,
        periods=len(steady),
    )


class Rule:
    """Decides for one window; sees its steps at every look."""

    def __init__(self, measure: Measure, *, period: int = 1, period_s: float = 0.0) -> None:
        """Begin a window.

        Args:
            measure: the wanted half-width and the limits.
            period: steps after which the pattern of work repeats.
            period_s: how long a period of steps took in the warm-up: the same number on all ranks;
                0 is unknown.
        """
        self._measure = measure
        self.period = period
        self.period_s = period_s
        if period_s / period > LONG_STEP_S:
            self._first = FIRST_LONG_LOOK
        else:
            self._first = _FIRST_LOOK

    def rehearse(self) -> None:
        """Perform one look in advance.

        The first look imports modules, which must not happen in the window.
        """
        # Of so few steps: as many as the window asks for can be millions.
        brief = Rule(replace(self._measure, min_steps=1))
        brief.look(np.ones(_REHEARSED_STEPS), seconds=math.inf)

    def next_look(self, steps: int) -> int:
        """Next step after `steps` at which the interval is looked at: a multiple of the period."""
        look = float(self._first)
        if self.period > 1:
            look = max(look, float(FEWEST_PERIODS * self.period))
        while (at := math.ceil(look / self.period) * self.period) <= steps:
            look *= _LOOK_FACTOR
        return at

    def limit(self, *, steps: int, seconds: float) -> str | None:
        """Name the limit that is reached, or None.

        Limits are the maxima, and a sufficient length without a wanted half-width. `max_seconds`
        waits for the least steps, but no longer than `_LONGEST_S`.
        """
        measure = self._measure
        if steps >= measure.max_steps:
            return "max_steps"
        has_least_steps = steps >= max(LEAST_STEPS, self.period)
        if seconds >= measure.max_seconds and (has_least_steps or seconds >= _LONGEST_S):
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
        within = measure.half_width
        if within is None or not is_long:
            return None
        step_time = estimate(series, self.period)
        if step_time is None:
            return None
        if self.period == 1:
            enough = min(FEWEST_STEPS, self._first)
        else:
            enough = FEWEST_PERIODS
        share = step_time.half_width_s / step_time.mean_s
        known_to = step_time.steadiness.widen(share, within=within)
        if step_time.periods >= enough and known_to is not None and known_to <= within:
            return "precise"
        return None
