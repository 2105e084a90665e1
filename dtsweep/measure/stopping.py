"""When a window ends: the one place that decides."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


class Rule:
    """Decides for one window; sees its steps at every look."""

    def __init__(
        self, measure: Measure, *, period: int = 1, samples_per_step: float = 0.0, rivals: Rivals = ()
    ) -> None:
        """Begin a window.

        Args:
            measure: the wanted half-width and the limits.
            period: steps after which the pattern of work repeats.
            samples_per_step: samples of all workers behind one step of one of them.
            rivals: what a point must not be dominated by, where `measure.race`.
        """
        self._measure, self.period = measure, period
        self._samples, self._rivals = samples_per_step, rivals
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
        measure = self._measure
        is_long = len(series) >= max(measure.min_steps, FIRST_LOOK) and seconds >= measure.min_seconds
        within = measure.half_width if is_long else None
        if within is None and not measure.race:
            return None
        seen = over_periods(series, self.period)
        start = steady_from(seen)
        steady = seen[start:]
        half = mean_half_width(steady)
        if start is None or half is None:
            return None
        share, rise = half / float(steady.mean()), drift(steady)
        races = measure.race and len(series) >= FIRST_RACE_LOOK and share <= RACE_HALF_WIDTH
        # While steps still get faster, the best is yet to come.
        if races and rise > -RACE_MARGIN and self._is_dominated(steady, half):
            return "dominated"
        enough = FEWEST_STEPS if self.period == 1 else FEWEST_PERIODS
        if within is None or len(steady) < enough:
            return None
        return "precise" if share <= within and abs(rise) <= within else None

    def _is_dominated(self, steady: Series, half: float) -> bool:
        """Whether some rival is better than this point at its very best."""
        latency = float(steady.mean() if self.period > 1 else np.median(steady)) - 2 * half
        rate = self._samples / (float(steady.mean()) - 2 * half)
        better = 1 + RACE_MARGIN
        return any(rival * better <= latency and rivals_rate >= rate * better for rival, rivals_rate in self._rivals)
