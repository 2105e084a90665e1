"""Parameters of the formula in units that a person can check."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.model.formula import COUNT, PRIORS
from dtsweep.model.posterior import Posterior
from dtsweep.model.setups import Numbers

NORMAL_90 = 1.645
"""Half-width of a normal distribution's 90 % interval, in standard deviations."""

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


def words_of(posterior: Posterior) -> list[str]:
    """Say what the parameters mean, a line each for pass, exchange, waiting and each offset."""
    values = {parameter.name: parameter for parameter in parameters_of(posterior)}
    time = {name: seconds(one.value) for name, one in values.items() if one.unit[0] == "s"}
    lines = [
        f"pass {time['pass_overhead']} + {time['sample']} per sample,"
        f" at least {time['pass_floor']} for all samples"
    ]
    if "node_bandwidth" in values:
        lines.append(
            f"exchange between nodes {time['node_latency']} × log2 nodes"
            f" + {time['node_bandwidth']} × 2 (workers − 1) / workers"
        )
    if "node_contention" in values:
        share = values["node_contention"].value
        lines.append(f"exchange between nodes {share:.1%} slower per further worker of a node")
    if "local_bandwidth" in values:
        lines.append(
            f"exchange within a node {time['local_latency']} × (workers − 1)"
            f" + {time['local_bandwidth']} × 2 (workers − 1) / workers"
        )
    if "worker_latency" in values:
        lines.append(f"exchange of all workers {time['worker_latency']} × log2 workers")
        lines += _waiting(posterior, values)
    for name, one in values.items():
        if " of " in name:
            lines.append(f"{name} {one.value:.2g} ({one.low:.2g} to {one.high:.2g})")
    return lines


def _waiting(posterior: Posterior, values: dict[str, Parameter]) -> list[str]:
    """Say what of the exchange compute hides, and what stragglers cost, where most workers ran."""
    setups = posterior.setups
    most = setups.take([int(np.argmax(setups.workers))])
    workers = float(most.workers[0])
    hidden = posterior.linear.frame.hidden_share(posterior.parameters()[0], most)
    lines = [f"{float(hidden[0]):.0%} of the exchange hidden at {workers:g} workers"]
    if "stragglers" in values:
        slower = values["stragglers"].value * np.sqrt(2 * np.log(workers))
        lines.append(f"slowest of {workers:g} workers {slower:.1%} slower than the mean")
    if "contention" in values:
        lines.append(f"pass {values['contention'].value:.1%} slower per further worker of a node")
    return lines


def seconds(value: float) -> str:
    """Write a time in a unit that fits it.

    >>> seconds(0.00123), seconds(2.5e-6), seconds(3.14159)
    ('1.2 ms', '2.5 µs', '3.1 s')
    """
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    unit, size = next((item for item in units.items() if value >= item[1]), ("ns", 1e-9))
    # two digits, but no exponent
    return f"{float(f'{value / size:.2g}'):g} {unit}"
