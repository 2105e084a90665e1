"""When a window ends: the one place that decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtsweep.measure.statistics import Series, mean_half_width, over_periods
from dtsweep.measure.warmup import drift, steady_from
from dtsweep.sweep.settings import Measure

FIRST_LOOK, FIRST_RACE_LOOK, LOOK_FACTOR = 30, 15, 1.2
"""Steps before the first look at the interval, and what the next ones are further out: a rule that looks at every
step stops by luck."""

FEWEST_STEPS, FEWEST_PERIODS = 20, 8
"""Steady steps, and sync periods, that an interval needs to be believed."""

RACE_MARGIN, RACE_HALF_WIDTH = 0.02, 0.10
"""How clearly a point must be dominated to be stopped early, and how well its mean must be known by then."""

AFTER = 0.5
"""What the steps after a window, which tell what the exchange costs, may take: a share of the window's time."""

Rivals = Sequence[tuple[float, float]]
"""Measured points: latency in seconds, samples per second."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The step time of a window's steady part, and how well it is known."""

    mean_s: float
    median_s: float
    half_width_s: float
    """Of the mean's 95 % interval."""
    drift: float
    """What the step time rises by from the first steady step to the last, as a share of it."""
    periods: int
    """Steady ones; steps, where the period is 1."""

    @property
    def half_width(self) -> float:
        """`half_width_s` as a share of the mean."""
        return self.half_width_s / self.mean_s


def estimate(series: Series, period: int) -> Estimate | None:
    """Estimate the step time; None while no part is steady, or too little of it for an interval.

    Args:
        series: (steps,) seconds of the window's steps so far.
        period: steps after which the pattern of work repeats: mean and interval are those of whole periods.
    """
    means = over_periods(series, period)
    start = steady_from(means)
    if start is None:
        return None
    steady = means[start:]
    half_width_s = mean_half_width(steady)
    if half_width_s is None:
        return None
    return Estimate(
        mean_s=float(steady.mean()),
        median_s=float(np.median(series[start * period :])),
        half_width_s=half_width_s,
        drift=drift(steady),
        periods=len(steady),
    )


def is_precise(known: Estimate, *, within: float, period: int) -> bool:
    """Whether the mean step time is known to `within`, a share of it, and does not drift by more."""
    enough = FEWEST_STEPS if period == 1 else FEWEST_PERIODS
    return known.periods >= enough and known.half_width <= within and abs(known.drift) <= within


def is_dominated(known: Estimate, rivals: Rivals, *, samples_per_step: float, latency_is_mean: bool) -> bool:
    """Whether some rival is clearly better in both, latency and rate, than a point of these steps at its very best."""
    # While steps still get faster, the best is yet to come.
    if known.half_width > RACE_HALF_WIDTH or known.drift <= -RACE_MARGIN:
        return False
    latency_s = (known.mean_s if latency_is_mean else known.median_s) - 2 * known.half_width_s
    rate = samples_per_step / (known.mean_s - 2 * known.half_width_s)
    better = 1 + RACE_MARGIN
    return any(rival_s * better <= latency_s and rivals_rate >= rate * better for rival_s, rivals_rate in rivals)


class Rule:
    """Decides for one window; sees its steps at every look."""

    def __init__(
        self,
        measure: Measure,
        *,
        period: int = 1,
        samples_per_step: float = 0.0,
        latency_is_mean: bool = False,
        rivals: Rivals = (),
    ) -> None:
        """Begin a window.

        Args:
            measure: the wanted half-width and the limits.
            period: steps after which the pattern of work repeats.
            samples_per_step: samples of all workers behind one step of one of them.
            latency_is_mean: whether the point's latency is its mean step instead of the median one.
            rivals: what a point must not be dominated by, where `measure.race`.
        """
        self._measure, self.period = measure, period
        self._samples_per_step, self._latency_is_mean, self._rivals = samples_per_step, latency_is_mean, rivals
        self._seen: str | None = None

    def rehearse(self) -> None:
        """Do once what a look does: its first time, which imports, must not fall into the window."""
        # As many as the window has at its first look, and enough for every part of a look.
        self._shown(np.ones(max(self._measure.min_steps, 50 * self.period)), math.inf)

    def next_look(self, steps: int) -> int:
        """The next step after `steps` at which the interval is looked at: a multiple of the period."""
        first = FIRST_RACE_LOOK if self._measure.race else FIRST_LOOK
        look = float(first if self.period == 1 else max(first, FEWEST_PERIODS * self.period))
        while (at := math.ceil(look / self.period) * self.period) <= steps:
            look *= LOOK_FACTOR
        return at

    def limit(self, *, steps: int, seconds: float) -> str | None:
        """Say which maximum is reached, or that a window without a wanted half-width is long enough; or None."""
        measure = self._measure
        if steps >= measure.max_steps:
            return "max_steps"
        if seconds >= measure.max_seconds:
            return "max_seconds"
        is_long = steps >= measure.min_steps and seconds >= measure.min_seconds
        return "enough" if measure.half_width is None and is_long else None

    def look(self, series: Series, *, seconds: float) -> str | None:
        """Say why the window ends now, by what its steps show, or None.

        Two looks in a row must show the same: one alone is right by luck too often.

        Args:
            series: (steps,) seconds of the window's steps so far.
            seconds: since its start.
        """
        was, self._seen = self._seen, self._shown(series, seconds)
        return self._seen if self._seen == was else None

    def _shown(self, series: Series, seconds: float) -> str | None:
        """What the steps show at one look."""
        measure, period = self._measure, self.period
        is_long = len(series) >= max(measure.min_steps, FIRST_LOOK) and seconds >= measure.min_seconds
        within = measure.half_width if is_long else None
        races = measure.race and len(series) >= FIRST_RACE_LOOK
        known = estimate(series, period) if races or within is not None else None
        if known is None:
            return None
        if races and is_dominated(
            known, self._rivals, samples_per_step=self._samples_per_step, latency_is_mean=self._latency_is_mean
        ):
            return "dominated"
        return "precise" if within is not None and is_precise(known, within=within, period=period) else None
