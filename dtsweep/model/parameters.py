"""Parameters of the formula in units that a person can check."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.model.formula import COUNT, PRIORS
from dtsweep.model.posterior import Posterior
from dtsweep.model.setups import NORMAL_90, Numbers

OF_PASS = ("pass_overhead", "pass_floor", "sample")
"""First parameters, which each model has."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """Parameter of the formula, with its 90 % interval."""

    name: str
    """Name, such as `node_latency` or `exchange of compression=powersgd`."""

    value: float
    """Most probable value."""

    low: float
    """Lower end of the 90 % interval."""

    high: float
    """Upper end of the 90 % interval."""

    unit: str
    """`s`, `s/sample`, or `1` for a ratio; of a number's power, `1` too."""


def parameters_of(posterior: Posterior) -> tuple[Parameter, ...]:
    """List the parameters that measurements say something about, with their intervals."""
    means, deviations = posterior.parameters()
    units = _units(posterior)
    frame = posterior.linear.frame
    names = [prior.name for prior in PRIORS]
    names += [f"compute of {offset.name}" for offset in frame.offsets]
    names += [f"exchange of {offset.name}" for offset in frame.offsets]
    is_power = [False] * COUNT + [offset.value is None for offset in frame.offsets] * 2
    parameters = []
    is_shown = np.any(posterior.evidence.slope != 0, axis=0)
    is_shown[: len(OF_PASS)] = True
    for index in np.flatnonzero(is_shown):
        ends = means[index] + NORMAL_90 * deviations[index] * np.array([0, -1, 1])
        value, low, high = ends if is_power[index] else np.exp(ends) * units[index]
        unit = PRIORS[index].unit if index < COUNT else "1"
        parameters.append(
            Parameter(
                name=names[index], value=float(value), low=float(low), high=float(high), unit=unit
            )
        )
    return tuple(parameters)


def _units(posterior: Posterior) -> Numbers:
    """Give the value of each parameter of the formula whose logarithm is 0; 1 for offsets."""
    frame = posterior.linear.frame
    one_pass = float(np.exp(frame.log_pass))
    units = {"s": one_pass, "s/sample": one_pass / frame.typical_batch, "1": 1.0}
    return np.array([*(units[prior.unit] for prior in PRIORS), *np.ones(2 * len(frame.offsets))])


def seconds(value: float) -> str:
    """Write a time in a unit that fits it.

    >>> seconds(0.00123), seconds(2.5e-6), seconds(3.14159)
    ('1.2 ms', '2.5 µs', '3.1 s')
    """
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    unit, size = next((item for item in units.items() if value >= item[1]), ("ns", 1e-9))
    # two digits, but no exponent
    return f"{float(f'{value / size:.2g}'):g} {unit}"
