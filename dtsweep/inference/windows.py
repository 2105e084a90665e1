"""Length of windows against number of launches: what limits an answer, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dtsweep.sweep.settings import LEAST_HALF_WIDTH

NORMAL_95 = 1.96
"""Half-width of a 95 % interval, in standard errors of a normal distribution."""

_OF_ZONE = 1 / 3
"""Half-width of a window, as a share of the indifference zone, that needs not be less.

Then two launches of each point show a difference to half of the zone.
"""


@dataclass(frozen=True, kw_only=True)
class Variances:
    """Variances of a launch mean that limit an answer, as squared shares, and what they cost."""

    between: float
    """Between-launch variance, without the effects that all points of a launch share."""
    within: float
    """Within-launch variance of a window of this length."""
    window_s: float
    launch_s: float
    """Time that a launch of a point takes besides its window."""

    @property
    def is_by_launches(self) -> bool:
        """True if launches differ more than their windows explain."""
        return self.between > self.within

    def optimal_window_variance(self, longest_s: float) -> float:
        """Within-launch variance of the window that gives the least error for its time.

        Its length is sqrt(launch_s × variance of a second ÷ between), by Kalibera & Jones (2013).

        Args:
            longest_s: of a window.

        >>> Variances(between=1e-4, within=4e-4, window_s=1, launch_s=4).optimal_window_variance(60)
        0.0001
        """
        of_a_second = self.within * self.window_s
        length_s = longest_s
        if self.between > 0:
            length_s = min(longest_s, (self.launch_s * of_a_second / self.between) ** 0.5)
        return of_a_second / length_s

    def half_width(self, widest: float, *, zone: float, longest_s: float) -> float:
        """Target half-width of the next windows, as a share.

        The optimal window gives it. It is at least `_OF_ZONE` of the indifference zone, and at
        least half of the present one: the variance between launches is known from few of them.

        Args:
            widest: that is asked for.
            zone: indifference zone, as a share.
            longest_s: of a window.

        >>> quiet = Variances(between=0, within=1e-4, window_s=1, launch_s=4)
        >>> quiet.half_width(0.02, zone=0.03, longest_s=16)
        0.01
        >>> quiet.half_width(0.02, zone=0.03, longest_s=1)
        0.02
        """
        optimum = NORMAL_95 * math.sqrt(self.optimal_window_variance(longest_s))
        half_of_present = NORMAL_95 * math.sqrt(self.within) / 2
        narrowest = max(LEAST_HALF_WIDTH, _OF_ZONE * zone, half_of_present)
        # Rows tell settings apart by their text.
        return float(f"{min(widest, max(narrowest, optimum)):.2g}")
