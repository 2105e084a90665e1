"""Chance that further rounds of launches decide, and whether they are worth their time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.inference.power import POWER
from dtsweep.inference.variance import Numbers
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dtsweep.inference.selection import Differences

MOST_ROUNDS = 20
"""Rounds that are looked ahead."""

_WORTH = 5.0
"""Time that a decided answer is worth, in the time that was spent so far.

What it gains is taken to be one indifference zone, the least that matters. By upper limits a loud
machine promises far more, and rounds went on of which 8 % decided (docs/log/2026-11-29.md).
"""

_DRAWS, _MOST_POINTS = 500, 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Further rounds of all contenders, if the estimates hold."""

    chances: Numbers
    """(rounds,) probability that the question is decided after 1, 2, … `MOST_ROUNDS` of them."""

    @property
    def rounds(self) -> float:
        """Further rounds that decide with probability `POWER`; infinite where it takes more."""
        is_enough = np.flatnonzero(self.chances >= POWER)
        return float(is_enough[0]) + 1 if len(is_enough) else math.inf

    def is_worth(self, *, share: float, left: int) -> bool:
        """True if some number of rounds has a chance, times what it gains, that exceeds the cost.

        Args:
            share: time of one more round, as a share of the time that was spent so far.
            left: rounds that may follow.

        >>> forecast = Forecast(chances=np.array([0.0, 0.2, 0.3]))
        >>> forecast.is_worth(share=0.3, left=3), forecast.is_worth(share=0.3, left=1)
        (True, False)
        >>> forecast.is_worth(share=0.6, left=3)
        False
        """
        chances = self.chances[: max(0, left)]
        costs = share * np.arange(1, len(chances) + 1)
        return bool((_WORTH * chances > costs).any())


def forecast_of(
    differences: Differences,
    contenders: NDArray[np.intp],
    prices: Numbers,
    *,
    chosen: int,
    zone: float,
    levels: tuple[float, float],
) -> Forecast:
    """Draw what further rounds of the contenders may show, and test it as `select` does.

    True costs are drawn around the estimates with their errors, whose size is drawn, too, and new
    means around these. The error falls with the root of the launches.

    Args:
        differences: in cost between all candidates.
        contenders: those that further rounds launch.
        prices: (points,) of equal points a cheaper one is taken.
        chosen: point that is chosen now.
        zone: indifference zone, in units of cost.
        levels: two-sided significance levels of a difference and of a limit of the zone.
    """
    best_first = np.argsort(differences.estimate[contenders, chosen], kind="stable")
    rows = np.union1d(contenders[best_first[:_MOST_POINTS]], [chosen])
    cells, place = np.ix_(rows, rows), int(np.flatnonzero(rows == chosen)[0])
    error, degrees = differences.error[cells], differences.degrees[cells]
    launches, drift = np.maximum(1, differences.launches[cells]), differences.drift[cells]
    estimate: Numbers = differences.estimate[cells][:, place]
    # True errors over their estimates; squared errors of a pair are sums of two points'.
    rng, typical = np.random.default_rng(0), float(np.clip(np.nanmedian(degrees), 1, 1e6))
    noise = (typical / rng.chisquare(typical, (_DRAWS, 1))) ** 0.5
    squares = np.where(np.eye(len(rows)) == 1, 0.0, error**2)
    point_error = (squares.sum(axis=1) / max(1, len(rows) - 1) / 2) ** 0.5
    shifts = point_error * noise * rng.normal(size=(_DRAWS, len(rows)))
    chances = np.zeros(MOST_ROUNDS)
    for further in range(1, MOST_ROUNDS + 1):
        share = launches / (launches + further)
        means = estimate + shifts * (1 - share[place]) ** 0.5
        free = degrees + further * max(1, len(rows) - 1)
        limits = [students_t(free, level=level) * error * share**0.5 for level in levels]
        # The means show the best point, or one equal to it and no cheaper.
        leaders = means.argmin(axis=1)
        gaps = means - means.min(axis=1, keepdims=True)
        of_difference, of_zone = (noise * limit[leaders] + drift[leaders] for limit in limits)
        is_worse = gaps > of_difference
        np.put_along_axis(is_worse, leaders[:, None], values=True, axis=1)
        is_within = of_zone - gaps <= zone
        np.put_along_axis(is_within, leaders[:, None], values=True, axis=1)
        # A cheaper point has to be known to be worse, or to be equal itself.
        is_dearer = prices[rows] >= prices[rows][leaders][:, None]
        is_settled = is_dearer | is_worse | (gaps + of_zone <= zone)
        is_decided = is_worse.all(axis=1) | (is_within & is_settled).all(axis=1)
        chances[further - 1] = is_decided.mean()
    return Forecast(chances=chances)
