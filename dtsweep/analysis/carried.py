"""Ratios of measured quantities, carried over to configurations near the measured ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtsweep.model.setups import Numbers, Setups

NEAR = 0.25
"""Distance at which a measured configuration counts a sixteenth of one at distance 0.

A distance is the number of doublings between sizes, and 2 for each other category.
"""

GROWTH = 0.05
"""Least standard deviation of a ratio's logarithm at distance 1: one measured point shows none."""


class Carried(NamedTuple):
    """Logarithms of a ratio for n configurations; nan where no measured one has it."""

    mean: Numbers
    """(n,) mean of the measured ones, the nearest first of all."""

    deviation: Numbers
    """(n,) standard deviation of them around it, and of the distance to the nearest."""


def carried_over(ratios: Numbers, measured: Setups, setups: Setups) -> Carried:
    """Carry a ratio over to configurations.

    Args:
        ratios: (m,) of the measured ones; nan or 0 where it is unknown.
        measured: m measured configurations.
        setups: n configurations.
    """
    is_known = ratios > 0
    if not is_known.any():
        return Carried(*np.full((2, len(setups)), np.nan))
    logs = np.log(ratios[is_known])
    apart = distances(setups, measured.take(is_known))
    weights = (apart + NEAR) ** -4.0
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ logs
    squares = (logs[None, :] - mean[:, None]) ** 2
    around = np.sqrt((weights * squares).sum(axis=1))
    return Carried(mean, np.hypot(around, GROWTH * apart.min(axis=1)))


def distances(setups: Setups, measured: Setups) -> Numbers:
    """Distances of n configurations to m measured ones: (n, m)."""
    total = np.zeros((len(setups), len(measured)))
    pairs = [
        *((getattr(setups, name), getattr(measured, name)) for name in _SIZES),
        *((setups.numbers[name], values) for name, values in measured.numbers.items()),
    ]
    for one, other in pairs:
        total += np.abs(np.log2(one)[:, None] - np.log2(other)[None, :])
    for name, texts in measured.categories.items():
        total += np.where(setups.categories[name][:, None] != texts[None, :], 2.0, 0.0)
    return total


_SIZES = ("workers", "nodes", "micro_batch", "accumulation", "period")
