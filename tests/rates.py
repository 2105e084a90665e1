"""Shares of simulated draws: how far they lie from the true rate by chance."""

from __future__ import annotations

import math


def chance(rate: float, draws: int) -> float:
    """Three standard deviations of the share among so many draws that have a rate.

    >>> round(chance(0.95, 400), 3), round(chance(0.95, 50), 3)
    (0.033, 0.092)
    """
    return 3 * math.sqrt(rate * (1 - rate) / draws)
