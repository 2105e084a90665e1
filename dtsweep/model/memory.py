"""Need of memory of a worker: arithmetic of states, activations, and what deviates from it.

Peak = process + the most of three moments (`memory_terms`) + a deviation of the mode. Unknown are
the process, the activations of a sample, the largest parameter and block, and the deviations; each
has a prior, so that few measurements give wide intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtsweep.model.memory_terms import Moments
from dtsweep.model.setups import Numbers

PARTS = ("largest", "block", "activations", "precision", "checkpointing", "mode")
"""Parts of the need with parameters of their own, by what they belong to."""

PASSES = Moments._fields.index("passes")
"""Moment to which the activations come."""

RELATIVE_NOISE, NOISE_BYTES = 0.02, 8.0 * 2**20
"""Standard deviation of a measured peak from the model, as a share of it and in bytes."""

TAIL = 0.05
"""Probability beyond each end of an interval."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemorySetups:
    """Settings of n configurations that their memory depends on."""

    moments: Numbers
    """(n, 3, 5), as `moments_of` gives them."""

    state_share: Numbers
    """(n,) bytes of optimizer state for a byte of parameters; nan where unknown."""

    model_bytes: Numbers
    """(n,) bytes of the parameters, nan where unknown."""

    block_share: Numbers
    """(n,) one by the number of blocks, nan where unknown."""

    micro_batch: Numbers
    """(n,) samples of a pass."""

    labels: NDArray[Any]
    """(n, 6) texts: the names of the `PARTS`; empty where a part plays no role."""

    looseness: Numbers
    """(n,) prior standard deviation of the mode's deviation, as a share of the parameters."""

    def __len__(self) -> int:
        """Number of configurations."""
        return len(self.micro_batch)


class Prior(NamedTuple):
    """Normal distribution of a parameter before anything is measured."""

    mean: float
    deviation: float


PROCESS, STATE = "process", "state"
"""Parameters of all configurations: logarithms of the bytes of a process, and of `state_share`."""


def priors_of(setups: MemorySetups) -> dict[str, Prior]:
    """Give the priors of the parameters that configurations have, by name.

    All are of logarithms, but the mode's: of bytes of a sample's activations, of shares of the
    parameters, and of ratios of activations. The mode's deviation is a share of the parameters.
    """
    priors = {PROCESS: Prior(np.log(400 * 2.0**20), 0.7), STATE: Prior(0.0, 0.7)}
    for row in range(len(setups)):
        for part, name in zip(PARTS, setups.labels[row], strict=True):
            if name and name not in priors:
                priors[name] = _prior(part, setups, row)
    return priors


def _prior(part: str, setups: MemorySetups, row: int) -> Prior:
    """Prior of a part of a configuration."""
    if part == "mode":
        return Prior(0.0, setups.looseness[row])
    if part == "activations":
        return Prior(np.log(0.02 * np.nan_to_num(setups.model_bytes[row], nan=2.0**20) + 1), 3.0)
    if part == "block" and not np.isnan(setups.block_share[row]):
        return Prior(np.log(setups.block_share[row]), 0.5)
    return {
        "largest": Prior(np.log(0.1), 1.0),
        "block": Prior(np.log(0.15), 1.0),
        "precision": Prior(np.log(0.6), 0.4),
        "checkpointing": Prior(np.log(0.3), 0.8),
    }[part]


def needs_of(setups: MemorySetups, values: Mapping[str, Numbers]) -> Numbers:
    """Compute peaks without noise from draws of the parameters, (draws,) each.

    Returns:
        (draws, n) bytes; nan where the bytes of the parameters are unknown.
    """
    names = {name: index for index, name in enumerate(values)}
    # An empty label is a ratio of 1.
    table = np.column_stack([*values.values(), np.zeros_like(values[PROCESS])])
    columns = np.array([[names.get(name, -1) for name in row] for row in setups.labels])
    part = {name: table[:, columns[:, index]] for index, name in enumerate(PARTS)}
    model_bytes = np.broadcast_to(setups.model_bytes, part["mode"].shape)
    unknown_state = np.exp(values[STATE])[:, None]
    share = np.where(np.isnan(setups.state_share), unknown_state, setups.state_share)
    units = [
        model_bytes,
        share * model_bytes,
        # Parts are no larger than the whole.
        np.exp(np.minimum(part["largest"], 0)) * model_bytes,
        np.exp(np.minimum(part["block"], 0)) * model_bytes,
        np.ones_like(model_bytes),
    ]
    held = np.einsum("nmu,udn->dnm", setups.moments, np.array(units))
    ratios = part["precision"] + part["checkpointing"]
    activations = setups.micro_batch * np.exp(part["activations"] + ratios)
    held[:, :, PASSES] += activations
    needs: Numbers = np.exp(values[PROCESS])[:, None] + part["mode"] * model_bytes + held.max(-1)
    return needs


def noise_bytes(needs: Numbers) -> Numbers:
    """Standard deviation of measured peaks from these needs, as it is assumed."""
    deviation: Numbers = np.hypot(RELATIVE_NOISE * needs, NOISE_BYTES)
    return deviation


class Need(NamedTuple):
    """Predicted peaks of n configurations, (n,) each, in bytes; nan where unknown."""

    expected: Numbers
    """Median."""

    low: Numbers
    """Lower end of the 90 % interval."""

    high: Numbers
    """Upper end of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedMemory:
    """Draws of the parameters, given what was measured."""

    draws: Mapping[str, Numbers]
    """(draws,) by parameter."""

    noise: float
    """Deviations of measured peaks, as a multiple of those assumed; at least 1."""

    def predict(self, setups: MemorySetups) -> Need:
        """Predict the peaks of the next trials."""
        needs = self._needs(setups)
        noise = np.random.default_rng(1).standard_normal(needs.shape)
        peaks = needs + self.noise * noise_bytes(needs) * noise
        return Need(*np.quantile(peaks, [0.5, TAIL, 1 - TAIL], axis=0))

    def probability_to_fit(self, setups: MemorySetups, capacity_bytes: Numbers | float) -> Numbers:
        """Give the probability that a peak stays within a capacity in bytes: (n,)."""
        from scipy.special import ndtr

        needs = self._needs(setups)
        margin = (capacity_bytes - needs) / (self.noise * noise_bytes(needs))
        probability: Numbers = ndtr(margin).mean(axis=0)
        return probability

    def _needs(self, setups: MemorySetups) -> Numbers:
        """Peaks without noise, (draws, n); parts without a measurement are drawn from priors."""
        random = np.random.default_rng(2)
        values = dict(self.draws)
        for name, prior in priors_of(setups).items():
            if name not in values:
                count = len(self.draws[PROCESS])
                values[name] = prior.mean + prior.deviation * random.standard_normal(count)
        return needs_of(setups, values)
