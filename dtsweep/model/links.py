"""Priors of the exchange by all-reduces that were timed without a training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtsweep.model.formula import Prior

DEVIATION = 1.0
"""Standard deviation of the logarithm of a link's time in a training, next to that of a test.

A training computes at the same time, and may use another algorithm. A factor of 3 is a standard
deviation.
"""

LEAST_S = 1e-7
"""Time below which no latency is believed."""


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """Time of an all-reduce of a worker's gradients, fitted over sizes of messages."""

    workers: int
    """Ranks that all-reduced, at least 2."""

    nodes: int
    """Machines that they ran on."""

    latency_s: float
    """Time in seconds that does not depend on the bytes."""

    transfer_s: float | None
    """Further time in seconds, of the bytes; None where it is unknown."""


def with_links(
    priors: Sequence[Prior], all_reduces: Sequence[AllReduce], *, log_pass: float
) -> tuple[Prior, ...]:
    """Put the times of links in the place of the means of the exchange's parameters.

    Of several links of a kind, the median of the logarithms counts.

    Args:
        priors: of the formula.
        all_reduces: of workers within a node, or on several nodes.
        log_pass: logarithm of a typical pass in seconds, which the priors relate times to.
    """
    logs = defaultdict(list)
    for one in all_reduces:
        for name, time_s in _times(one).items():
            logs[name].append(float(np.log(max(time_s, LEAST_S))))
    return tuple(
        Prior(
            name=prior.name,
            mean=float(np.median(logs[prior.name])) - log_pass,
            deviation=DEVIATION,
            unit=prior.unit,
        )
        if prior.name in logs
        else prior
        for prior in priors
    )


def _times(one: AllReduce) -> dict[str, float]:
    """Times in seconds of parameters of the formula, by name."""
    if one.nodes > 1:
        times = {"node_latency": one.latency_s / np.log2(one.nodes)}
        bandwidth = "node_bandwidth"
    else:
        times = {"local_latency": one.latency_s / (one.workers - 1)}
        bandwidth = "local_bandwidth"
    if one.transfer_s is not None:
        # The formula has the bytes of a ring.
        times[bandwidth] = one.transfer_s * one.workers / (2 * (one.workers - 1))
    return times
