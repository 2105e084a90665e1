"""Step time of a configuration by a formula with few parameters, and its derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dtsweep.predict.setups import Numbers, Setups

PRIORS: Mapping[str, tuple[float, float]] = {
    "pass_overhead": (-2.0, 2.0),
    "pass_floor": (-1.0, 1.5),
    "sample": (-1.0, 1.5),
    "floor_sharpness": (0.0, 0.7),
    "node_bandwidth": (-1.5, 1.5),
    "node_latency": (-4.0, 1.5),
    "local_bandwidth": (-2.5, 1.5),
    "local_latency": (-5.0, 1.5),
    "worker_latency": (-5.0, 1.5),
    "queue": (-5.0, 1.5),
    "node_contention": (-3.0, 1.5),
    "contention": (-4.6, 1.2),
    "stragglers": (-4.6, 1.0),
    "overlap": (0.0, 0.7),
}
"""Normal priors of the logarithms of the parameters: mean and standard deviation.

They are of the formula in `log_times`. A time is relative to a typical pass, `sample` to a typical
micro-batch, too.
"""

COUNT = len(PRIORS)
_SHARPEST = 9.0
"""Largest `floor_sharpness` and `overlap`: beyond, a sum of powers is a maximum."""

_SMALLEST = 1e-30
_STEP = 1e-4
"""Of a parameter's logarithm, for differences."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """Settings of n configurations as the formula takes them."""

    setups: Setups
    relative_batch: Numbers
    """(n,) micro-batch by the typical micro-batch."""

    plain_passes: Numbers
    """(n,) passes per step without an exchange."""

    exchanges: Numbers
    """(n,) exchanges per step."""

    matrix: Numbers
    """(n, offsets) that offsets multiply."""


def _power_sum(first: Numbers, second: Numbers, power: Numbers) -> Numbers:
    """Take the norm of two times: their sum at power 1, nearly their maximum at power 10."""
    logs = (np.log(np.maximum(values, _SMALLEST)) for values in (first, second))
    norm: Numbers = np.exp(np.logaddexp(*(power * log for log in logs)) / power)
    return norm


def _pass_times(values: dict[str, Numbers], terms: Terms) -> Numbers:
    """Time of the slowest worker's pass without an exchange, by the typical pass."""
    growing = values["sample"] * terms.relative_batch
    sharpness = 1 + np.minimum(values["floor_sharpness"], _SHARPEST)
    alone = values["pass_overhead"] + _power_sum(values["pass_floor"], growing, sharpness)
    setups = terms.setups
    contention = 1 + values["contention"] * (setups.per_node - 1)
    times: Numbers = alone * contention * setups.slowness
    return times


def _exchange_times(values: dict[str, Numbers], setups: Setups) -> Numbers:
    """Time of an exchange without compute, by the typical pass."""
    has_servers = setups.servers > 0
    # a ring over all workers sends 2 (K − 1) / K times the bytes through each node's link
    across = np.where(setups.nodes > 1, 2 * (setups.workers - 1) / setups.workers, 0.0)
    contention = 1 + values["node_contention"] * (setups.per_node - 1)
    across = across * contention * setups.payload
    within = 2 * (setups.per_node - 1) / setups.per_node * setups.payload
    neighbours = setups.per_node - 1
    # each server takes the payloads of all workers one after another
    served = setups.workers / np.maximum(setups.servers, 1) * setups.payload
    queue = np.where(setups.is_asynchronous, setups.workers, 0.0)
    queue = np.where(has_servers, served, queue)
    rounds = np.where(has_servers, 1.0, np.log2(setups.workers))
    times: Numbers = (
        values["node_bandwidth"] * np.where(has_servers, 0.0, across)
        + values["node_latency"] * np.log2(setups.nodes)
        + values["local_bandwidth"] * np.where(has_servers, 0.0, within)
        + values["local_latency"] * np.where(has_servers, 0.0, neighbours)
        + values["worker_latency"] * rounds
        + values["queue"] * queue
    )
    return times


def log_times(
    logs: Numbers, terms: Terms, *, log_compute: Numbers, log_exchange: Numbers
) -> tuple[Numbers, Numbers]:
    """Logarithms of the step time and of the pass time, by the typical pass.

    Args:
        logs: (…, parameters) logarithms of the parameters, in the order of `PRIORS`.
        terms: of n configurations.
        log_compute: (…, n) logarithm of a factor of the pass time.
        log_exchange: (…, n) logarithm of a factor of the exchange.

    Returns:
        Two arrays of shape (…, n).
    """
    values = {name: np.exp(logs[..., index, None]) for index, name in enumerate(PRIORS)}
    one_pass = _pass_times(values, terms) * np.exp(log_compute)
    exchange = _exchange_times(values, terms.setups) * np.exp(log_exchange)
    setups = terms.setups
    waits = np.where(setups.is_asynchronous, 0.0, np.sqrt(2 * np.log(setups.workers)))
    slowest = one_pass * (1 + values["stragglers"] * waits)
    overlap = 1 + np.minimum(values["overlap"], _SHARPEST)
    exchanging = _power_sum(slowest, exchange, overlap)
    step = terms.plain_passes * one_pass + terms.exchanges * exchanging
    return np.log(step), np.log(one_pass)


def slopes(
    logs: Numbers, terms: Terms, *, log_compute: Numbers, log_exchange: Numbers
) -> tuple[Numbers, Numbers]:
    """Derivatives of `log_times` by each parameter, log compute and log exchange.

    Args:
        logs: (parameters,) logarithms of the parameters.
        terms: of n configurations.
        log_compute: (n,) logarithm of a factor of the pass time.
        log_exchange: (n,) logarithm of a factor of the exchange.

    Returns:
        Two arrays of shape (n, parameters + 2): of the step time, and of the pass time.
    """
    moves = np.zeros((2, COUNT + 2, COUNT + 2))
    moves[0] = _STEP * np.eye(COUNT + 2)
    moves[1] = -moves[0]
    ends = log_times(
        logs + moves[..., :COUNT],
        terms,
        log_compute=log_compute + moves[..., COUNT, None],
        log_exchange=log_exchange + moves[..., COUNT + 1, None],
    )
    of_step, of_pass = ((end[0] - end[1]).T / (2 * _STEP) for end in ends)
    return of_step, of_pass
