"""Levels of canaries, and whether two of them differ by more than chance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dtsweep.results.statuses import CANARY_DRIFT
from dtsweep.sweep.settings import LEAST_HALF_WIDTH


class Level(NamedTuple):
    """Mean steps of canaries, and how well they are known: numbers, or columns of them."""

    step_s: Any
    half_width: Any
    """Of the 95 % interval, as a share of the mean; nan where it is unknown."""


class _Change(NamedTuple):
    """Relative difference of two levels, with its margin of error."""

    share: Any
    half_width: Any
    """Of the 95 % interval of `share`; nan where it is unknown."""

    @property
    def is_drift(self) -> Any:
        """True if it is more than 2 %, and more than chance."""
        return abs(self.share) > np.maximum(CANARY_DRIFT, self.half_width)

    @property
    def hides_drift(self) -> Any:
        """True if there may be a drift that these canaries are known too badly to show."""
        return ~(self.is_drift | (self.half_width <= CANARY_DRIFT))


def change(now: Level, then: Level) -> _Change:
    """Compare two levels."""
    ratio = now.step_s / then.step_s
    return _Change(ratio - 1, ratio * np.hypot(now.half_width, then.half_width))


def median_of(levels: Level) -> Level:
    """The median of columns of levels, weighted by their precision.

    Its half-width is about right.

    >>> median_of(Level([1.0, 1.2], [0.01, 0.01])).step_s
    1.1
    >>> median_of(Level([1.0, 1.2], [0.01, 0.5])).step_s
    1.0
    """
    order = np.argsort(levels.step_s)
    steps, half_widths = (np.asarray(column, dtype=np.float64)[order] for column in levels)
    weights = np.nan_to_num(1 / half_widths)
    if not weights.any():
        return Level(float(np.median(steps)), math.nan)
    below = np.cumsum(weights) / weights.sum()
    # Two of them where one has exactly half of the weight below it.
    around = steps[np.searchsorted(below, [0.5 - 1e-9, 0.5 + 1e-9])]
    # That of a mean of two; the median of more normal values is π / 2 times as variable as their
    # mean.
    spread = 1.0
    if len(steps) > 2:
        spread = math.sqrt(math.pi / 2)
    return Level(float(around.mean()), spread / float(np.sqrt(np.sum(weights**2))))


def level_of(step_s: Any, *, error_s: Any, half_width: Any) -> Level:
    """Level of a canary, with an uncertainty as its steps show it; rare events are left out.

    Args:
        step_s: its mean step, or a column of them.
        error_s: the standard error of that; where it is nan,
        half_width: a share, counts in its place.
    """
    by_steps = np.maximum(LEAST_HALF_WIDTH, 2 * error_s / step_s)
    return Level(step_s, np.where(np.isnan(error_s), half_width, by_steps))
