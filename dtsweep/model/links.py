"""Priors of the exchange by all-reduces that were timed without a training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.model.formula import Prior

DEVIATION = 1.0
"""Standard deviation of the logarithm of a link's time in a training, next to that of a test.

A training computes at the same time, and may use another algorithm. A factor of 3 is about one
standard deviation.
"""

LEAST_SHARE = 0.1
"""Smallest share of a link's time between nodes, where its parts within nodes explain all of it."""

Times = Mapping[str, float]
"""Times in seconds of parameters of the formula, by name."""


@dataclass(frozen=True, kw_only=True)
class AllReduce:
    """Time of an all-reduce of a worker's gradients, fitted over sizes of messages."""

    workers: int
    """Ranks that all-reduced, at least 2."""

    nodes: int
    """Machines that they ran on."""

    latency_s: float | None
    """Time in seconds that does not depend on the bytes; None where it is unknown."""

    transfer_s: float | None
    """Time in seconds that the bytes take; None where it is unknown."""

    @property
    def ring(self) -> float:
        """Ratio of the bytes that a worker sends around a ring to its own bytes."""
        return 2 * (self.workers - 1) / self.workers


def with_links(
    priors: Sequence[Prior], all_reduces: Sequence[AllReduce], *, log_pass: float
) -> tuple[Prior, ...]:
    """Replace the means of the exchange's priors by times of links.

    The exchange of a timed group then takes the time of its link. Of several groups of a kind, the
    median of the logarithms counts.

    Args:
        priors: of the formula.
        all_reduces: of workers within a node, or on several nodes.
        log_pass: logarithm of a typical pass in seconds, which the priors relate times to.
    """
    (contention,) = (
        float(np.exp(prior.mean)) for prior in priors if prior.name == "node_contention"
    )
    times = _medians(_within(link) for link in all_reduces if link.nodes == 1)
    between = [
        _between(link, times, contention=contention) for link in all_reduces if link.nodes > 1
    ]
    # A latency within nodes says more of what each worker adds than one between them.
    times = {**_medians(between), **times}
    replaced = []
    for prior in priors:
        if prior.name in times:
            mean = float(np.log(times[prior.name])) - log_pass
            replaced.append(replace(prior, mean=mean, deviation=DEVIATION))
        else:
            replaced.append(prior)
    return tuple(replaced)


def _medians(links: Iterable[Times]) -> Times:
    """Median of each parameter."""
    values = defaultdict(list)
    for times in links:
        for name, time_s in times.items():
            values[name].append(np.log(time_s))
    return {name: float(np.exp(np.median(logs))) for name, logs in values.items()}


def _within(link: AllReduce) -> Times:
    """Divide the time of a link within a node: of its latency, each part takes one half."""
    times = {}
    if link.latency_s is not None:
        times["local_latency"] = link.latency_s / 2 / (link.workers - 1)
        times["worker_latency"] = link.latency_s / 2 / np.log2(link.workers)
    if link.transfer_s is not None:
        times["local_bandwidth"] = link.transfer_s / link.ring
    return times


def _between(link: AllReduce, local: Times, *, contention: float) -> Times:
    """Take what a link between nodes needs beyond its parts within nodes."""
    per_node = link.workers / link.nodes
    times = {}
    if link.latency_s is not None:
        by_worker = local.get("worker_latency", link.latency_s / 2 / np.log2(link.workers))
        known_s = by_worker * np.log2(link.workers)
        known_s += local.get("local_latency", 0.0) * (per_node - 1)
        rest_s = max(link.latency_s - known_s, LEAST_SHARE * link.latency_s)
        times["node_latency"] = rest_s / np.log2(link.nodes)
        times["worker_latency"] = by_worker
    if link.transfer_s is not None:
        known_s = local.get("local_bandwidth", 0.0) * 2 * (per_node - 1) / per_node
        rest_s = max(link.transfer_s - known_s, LEAST_SHARE * link.transfer_s)
        times["node_bandwidth"] = rest_s / link.ring / (1 + contention * (per_node - 1))
    return times
