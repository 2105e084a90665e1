"""Axes of plots: a linear or logarithmic scale, and round numbers for its ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOGARITHMIC_FROM = 10.0
"""Largest over smallest value beyond which an axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class PlotAxis:
    """One axis of a plot."""

    low: float
    """Its lower end, in the unit of the values."""
    high: float
    """Its upper end."""
    is_logarithmic: bool
    """True if the scale is logarithmic, so that equal ratios are equally long."""
    ticks: Sequence[float]
    """Round numbers between both ends, ascending."""

    def share(self, value: float) -> float:
        """Give the position of a value, from 0 at the lower end to 1 at the upper end."""
        low, high, position = (
            math.log(end) if self.is_logarithmic else end for end in (self.low, self.high, value)
        )
        return (position - low) / (high - low)


def axis_for(
    values: Sequence[float], *, most_ticks: int = 6, margin: float = 0.06, from_zero: bool = False
) -> PlotAxis:
    """Choose an axis on which all values have room.

    Args:
        values: finite and above 0, at least one.
        most_ticks: that there is room for.
        margin: free room at each end, as a share of what the values take.
        from_zero: let the axis begin at 0, and be no logarithmic one.

    >>> axis_for([14.0, 195.0]).ticks, axis_for([265.0, 658.0]).ticks
    ((20, 50, 100, 200), (300, 400, 500, 600))
    """
    low, high = min(values), max(values)
    if from_zero:
        high *= 1 + margin
        return PlotAxis(
            low=0.0, high=high, is_logarithmic=False, ticks=_steps(0.0, high, most_ticks)
        )
    if high / low > _LOGARITHMIC_FROM:
        beyond = (high / low) ** margin
        low, high = low / beyond, high * beyond
        return PlotAxis(
            low=low, high=high, is_logarithmic=True, ticks=_powers(low, high, most_ticks)
        )
    beyond = (high - low or low) * margin
    low, high = low - beyond, high + beyond
    return PlotAxis(low=low, high=high, is_logarithmic=False, ticks=_steps(low, high, most_ticks))


def tick_label(value: float) -> str:
    """Write a round number.

    >>> tick_label(20000), tick_label(0.05), tick_label(2000000)
    ('20,000', '0.05', '2M')
    """
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:g}{letter}"
    if value >= 1 and float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:g}"


def _powers(low: float, high: float, most: int) -> tuple[float, ...]:
    """Powers of ten, with 2 and 5 times these where there is room."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        candidates = tuple(factor * 10**exponent for exponent in exponents for factor in factors)
        inside = tuple(value for value in candidates if low <= value <= high)
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]


def _steps(low: float, high: float, most: int) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    decimals = max(0, -math.floor(math.log10(step)))
    return tuple(round(number * step, decimals) for number in range(first, last + 1))
