"""Categories and numbers of users as factors of compute and exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.predict.setups import Numbers, Setups

_COMPUTE_DEVIATION = 0.5
_EXCHANGE_DEVIATION = 1.0
"""Prior standard deviations of the logarithm of a category's factor."""

_POWER_DEVIATION = 0.3
"""Prior standard deviation of the power of a number."""


@dataclass(frozen=True, kw_only=True)
class Offset:
    """Column of the design: a value of a category, or a number."""

    setting: str
    """Name of the category or of the number."""

    value: str | None
    """Value of the category; None for a number."""

    typical: float = 1.0
    """Number to which others are related."""


def offsets_of(setups: Setups) -> tuple[Offset, ...]:
    """List the columns that measured configurations can tell apart; constant settings have none."""
    columns: list[Offset] = []
    for name, values in setups.categories.items():
        levels = sorted({str(value) for value in values})
        if len(levels) > 1:
            columns += [Offset(setting=name, value=level) for level in levels]
    for name, numbers in setups.numbers.items():
        if np.ptp(numbers) > 0:
            typical = float(np.exp(np.mean(np.log(numbers))))
            columns.append(Offset(setting=name, value=None, typical=typical))
    return tuple(columns)


def design(offsets: tuple[Offset, ...], setups: Setups) -> Numbers:
    """Make the (n, offsets) matrix that offsets multiply."""
    matrix = np.zeros((len(setups), len(offsets)))
    for index, offset in enumerate(offsets):
        if offset.value is None:
            relative = setups.numbers[offset.setting] / offset.typical
            matrix[:, index] = np.log(np.maximum(relative, 1e-6))
        else:
            values = setups.categories[offset.setting].astype(str)
            matrix[:, index] = values == offset.value
    return matrix


def deviations(offsets: tuple[Offset, ...]) -> tuple[Numbers, Numbers]:
    """Prior standard deviations of the offsets of log compute and of log exchange."""
    is_number = np.array([offset.value is None for offset in offsets], dtype=np.bool_)
    compute = np.where(is_number, _POWER_DEVIATION, _COMPUTE_DEVIATION)
    exchange = np.where(is_number, _POWER_DEVIATION, _EXCHANGE_DEVIATION)
    return compute, exchange
