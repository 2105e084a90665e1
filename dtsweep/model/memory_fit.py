"""Fit of the need of memory to measured peaks, and to trials that ran out of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dtsweep.model.memory import (
    PARTS,
    PROCESS,
    FittedMemory,
    MemorySetups,
    Prior,
    needs_of,
    noise_bytes,
    priors_of,
)
from dtsweep.model.setups import Numbers

USABLE_SHARE = 0.9
"""Share of a GPU's free memory that tensors filled at least when an allocation failed.

The rest may be fragments, and buffers of libraries.
"""

PROCESS_ON_GPU = Prior(float(np.log(64 * 2.0**20)), 1.5)
"""Logarithm of the bytes of a GPU that belong to no setting: buffers, workspaces."""

NOISE_TRIALS = 3
"""Trials that the assumed noise counts for, where measured deviations are larger."""

CHAINS, CHAIN_STEPS = 200, 80
"""Draws of the parameters, and steps of each from the normal approximation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredPeaks:
    """Outcomes of n configurations."""

    peak_bytes: Numbers
    """(n,) largest peak of a worker; nan where none was measured."""

    full_bytes: Numbers
    """(n,) memory of the device that a trial ran out of; nan where it did not."""

    is_gpu: bool = False
    """True if peaks are tensors of a GPU, not memory of the whole process."""


def fit_memory(setups: MemorySetups, measured: MeasuredPeaks) -> FittedMemory:
    """Fit the parameters by robust least squares, then draw from what the data allow.

    Args:
        setups: what was measured, with known `model_bytes`.
        measured: peaks; of some it is only known that they exceed a capacity.
    """
    posterior = _posterior(setups, measured, noise=1.0)
    best = min(
        (posterior.optimum(start) for start in _starts(posterior, measured)),
        key=lambda at: float(posterior.cost(at[None])[0]),
    )
    noise = _noise(posterior, best)
    draws = _posterior(setups, measured, noise=noise).drawn(best)
    return FittedMemory(draws=posterior.by_name(draws), noise=noise)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Posterior:
    """Distribution of the parameters, given what was measured."""

    setups: MemorySetups
    measured: MeasuredPeaks
    priors: Mapping[str, Prior]
    noise: float

    def by_name(self, values: Numbers) -> dict[str, Numbers]:
        """Name the columns of (draws, parameters)."""
        return dict(zip(self.priors, values.T, strict=True))

    def residuals(self, values: Numbers) -> Numbers:
        """Of data, then of priors: (draws, parameters) to (draws, n + parameters)."""
        of_data = _residuals(needs_of(self.setups, self.by_name(values)), self.measured)
        mean, deviation = np.array([*self.priors.values()]).T
        return np.concatenate([_robust(of_data / self.noise), (values - mean) / deviation], axis=1)

    def cost(self, values: Numbers) -> Numbers:
        """Negative logarithm of the density: (draws,)."""
        cost: Numbers = (self.residuals(values) ** 2).sum(axis=1) / 2
        return cost

    def slopes(self, at: Numbers) -> Numbers:
        """Derivatives of the residuals: (n + parameters, parameters)."""
        step = np.diag([1e-4 * prior.deviation for prior in self.priors.values()])
        change = self.residuals(at + step) - self.residuals(at - step)
        slopes: Numbers = change.T / (2 * np.diag(step))
        return slopes

    def optimum(self, start: Numbers) -> Numbers:
        """The most probable parameters near a start."""
        from scipy.optimize import least_squares

        def residuals(at: Numbers) -> Numbers:
            first: Numbers = self.residuals(at[None])[0]
            return first

        best: Numbers = least_squares(residuals, start, jac=self.slopes, max_nfev=60).x
        return best

    def drawn(self, best: Numbers) -> Numbers:
        """Draw by differential evolution (ter Braak 2006): (draws, parameters).

        The need has kinks, where the normal approximation that it starts from is wrong.
        """
        random = np.random.default_rng(0)
        slopes = self.slopes(best)
        covariance = np.linalg.inv(slopes.T @ slopes)
        draws: Numbers = random.multivariate_normal(best, covariance, size=CHAINS)
        cost = self.cost(draws)
        for step in range(CHAIN_STEPS):
            one, another = draws[random.permutation(CHAINS)], draws[random.permutation(CHAINS)]
            # Now and then whole steps lead from one mode to another.
            scale = 1.0 if step % 10 == 9 else 2.38 / (2 * len(best)) ** 0.5
            jitter = 1e-4 * random.standard_normal(draws.shape)
            proposed = draws + scale * (one - another) + jitter
            proposed_cost = self.cost(proposed)
            moves = np.log(random.random(CHAINS)) < cost - proposed_cost
            draws = np.where(moves[:, None], proposed, draws)
            cost = np.where(moves, proposed_cost, cost)
        return draws


def _posterior(setups: MemorySetups, measured: MeasuredPeaks, *, noise: float) -> _Posterior:
    """Posterior with this noise, as a multiple of the one that is assumed."""
    priors = priors_of(setups)
    if measured.is_gpu:
        priors[PROCESS] = PROCESS_ON_GPU
    return _Posterior(setups=setups, measured=measured, priors=priors, noise=noise)


def _noise(posterior: _Posterior, best: Numbers) -> float:
    """Deviations of peaks from the best fit, as a multiple of those assumed; at least 1."""
    count = len(posterior.setups)
    slopes = posterior.slopes(best)
    of_data = slopes[:count]
    used = np.trace(np.linalg.solve(slopes.T @ slopes, of_data.T @ of_data))
    squares = (posterior.residuals(best[None])[0, :count] ** 2).sum()
    freedom = NOISE_TRIALS + max(0.0, count - float(used))
    return max(1.0, math.sqrt((NOISE_TRIALS + squares) / freedom))


def _residuals(needs: Numbers, measured: MeasuredPeaks) -> Numbers:
    """Deviations of peaks in standard deviations; of a full device what is missing to its size."""
    known = np.nan_to_num(measured.peak_bytes)
    of_peaks = np.where(np.isnan(measured.peak_bytes), 0.0, (needs - known) / noise_bytes(known))
    least = USABLE_SHARE * np.nan_to_num(measured.full_bytes)
    missing: Numbers = of_peaks + np.minimum(needs - least, 0.0) / noise_bytes(least)
    return missing


def _robust(residuals: Numbers) -> Numbers:
    """Residuals whose squares grow like absolute values beyond one standard deviation (soft L1)."""
    robust: Numbers = np.sign(residuals) * np.sqrt(2 * (np.sqrt(1 + residuals**2) - 1))
    return robust


def _starts(posterior: _Posterior, measured: MeasuredPeaks) -> list[Numbers]:
    """Starts of the fit: the priors, and activations that explain a part of the peaks.

    From few activations, which another moment hides, the fit sees no slope.
    """
    names, setups = [*posterior.priors], posterior.setups
    mean = np.array([prior.mean for prior in posterior.priors.values()])
    labels = setups.labels[:, PARTS.index("activations")]
    per_sample = np.fmax(measured.peak_bytes, measured.full_bytes) / setups.micro_batch
    starts = [mean]
    for share in (0.1, 0.5, 0.9):
        start = mean.copy()
        for name in set(labels):
            of_name = per_sample[labels == name]
            if not np.isnan(of_name).all():
                start[names.index(name)] = np.log(share * np.nanmin(of_name))
        starts.append(start)
    return starts
