"""Cycles of points in turn: when their differences are known well enough."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import mean_half_width


def is_settled(times: NDArray[np.float64], *, half_width: float) -> bool:
    """True if each point's distance from the fastest one is known to a half-width, or is not 0.

    Args:
        times: (points, cycles) logarithms of times of turns.
        half_width: of the 95 % interval of a distance.
    """
    distances = times - times[np.median(times, axis=1).argmin()]
    for distance in distances:
        middle = float(np.median(distance))
        # A late turn counts as one at the edge of the usual ones.
        reach = 3 * 1.4826 * float(np.median(np.abs(distance - middle)))
        known_to = mean_half_width(np.clip(distance, middle - reach, middle + reach))
        if known_to is None:
            return False
        if known_to > half_width and abs(middle) < 2 * known_to:
            return False
    return True
