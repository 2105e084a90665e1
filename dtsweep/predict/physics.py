"""Fit of the formula: the most probable parameters, given priors and measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtsweep.predict.formula import COUNT, PRIORS, Terms, log_times, slopes
from dtsweep.predict.offsets import Offset, design, deviations, offsets_of
from dtsweep.predict.setups import Flags, MeasuredSetups, Numbers, Setups

_TYPICAL_MISFIT = 0.1
"""Of the formula, as a standard deviation of the logarithm; larger ones count less."""

_UNKNOWN_ERROR = 0.01
"""Standard error of the logarithm of a time, within the window, where it is unknown."""

_LEAST_ERROR = 1e-3
"""Standard error below which no window is believed to be."""

_STARTS = {
    "prior": {},
    "network_bound": {"node_bandwidth": 1.5, "node_latency": 1.5, "local_bandwidth": 1.5},
    "latency_bound": dict.fromkeys(
        ("node_latency", "local_latency", "worker_latency", "queue"), 2.5
    ),
    "compute_bound": {"node_bandwidth": -2.0, "local_bandwidth": -2.0, "sample": 1.0},
    "small_batches": {"pass_floor": 1.0, "sample": -2.0, "floor_sharpness": 1.0},
}
"""Starts of the search: what is added to the means of the priors."""

_MOST_CALLS = 60
"""Evaluations of the formula from one start."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """Units and columns of a fit; times are related to a typical pass."""

    log_pass: float
    """Logarithm of a typical pass, in seconds."""

    typical_batch: float
    """Geometric mean of the micro-batches, in samples."""

    offsets: tuple[Offset, ...]
    """Factors of compute and of exchange."""

    means: Numbers
    """(parameters,) of the priors: of the formula, offsets of compute, offsets of exchange."""

    deviations: Numbers
    """(parameters,) of the priors."""

    def terms(self, setups: Setups) -> Terms:
        """Derive what the formula takes."""
        exchanging = np.where(setups.exchanges_each_pass, setups.accumulation, 1.0)
        exchanges = exchanging / np.maximum(setups.period, 1.0)
        return Terms(
            setups=setups,
            relative_batch=setups.micro_batch / self.typical_batch,
            plain_passes=setups.accumulation - exchanges,
            exchanges=exchanges,
            matrix=design(self.offsets, setups),
        )

    def formula(self, logs: Numbers, terms: Terms) -> tuple[Numbers, Numbers]:
        """Logarithms of (n,) step times and (n,) pass times in seconds."""
        compute, exchange = self._factors(logs, terms.matrix)
        of_step, of_pass = log_times(
            logs[:COUNT], terms, log_compute=compute, log_exchange=exchange
        )
        return of_step + self.log_pass, of_pass + self.log_pass

    def slopes(self, logs: Numbers, terms: Terms) -> tuple[Numbers, Numbers]:
        """Derivatives of `formula` by the parameters, then by log compute and log exchange.

        Returns:
            Two arrays of shape (n, parameters + 2).
        """
        compute, exchange = self._factors(logs, terms.matrix)
        both = slopes(logs[:COUNT], terms, log_compute=compute, log_exchange=exchange)
        of_step, of_pass = (
            np.hstack(
                [
                    some[:, :COUNT],
                    some[:, [COUNT]] * terms.matrix,
                    some[:, [COUNT + 1]] * terms.matrix,
                    some[:, COUNT:],
                ]
            )
            for some in both
        )
        return of_step, of_pass

    def _factors(self, logs: Numbers, matrix: Numbers) -> tuple[Numbers, Numbers]:
        middle = COUNT + len(self.offsets)
        return matrix @ logs[COUNT:middle], matrix @ logs[middle:]


def physics_frame(setups: Setups, measured: MeasuredSetups) -> Frame:
    """Choose units and columns by the measured configurations."""
    passes = np.where(
        np.isfinite(measured.pass_s), measured.pass_s, measured.step_s / setups.accumulation
    )
    offsets = offsets_of(setups)
    zeros = np.zeros(2 * len(offsets))
    means, spreads = zip(*PRIORS.values(), strict=True)
    return Frame(
        log_pass=float(np.mean(np.log(passes))),
        typical_batch=float(np.exp(np.mean(np.log(setups.micro_batch)))),
        offsets=offsets,
        means=np.concatenate([means, zeros]),
        deviations=np.concatenate([spreads, *deviations(offsets)]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Logarithms of measured times: of all steps, then of the passes that are known."""

    log_s: Numbers
    """(observations,) of times in seconds."""

    row: NDArray[np.int64]
    """(observations,) number of the configuration."""

    is_pass: Flags
    """(observations,) True for the time of a pass."""

    error: Numbers
    """(observations,) standard errors within the window."""


def observed_of(measured: MeasuredSetups) -> Observed:
    """List the times that were measured."""
    count = len(measured.step_s)
    known = np.flatnonzero(np.isfinite(measured.pass_s))
    row = np.concatenate([np.arange(count), known])
    times = np.concatenate([measured.step_s, measured.pass_s[known]])
    error = np.where(measured.error > 0, measured.error, _UNKNOWN_ERROR)
    return Observed(
        log_s=np.log(times),
        row=row,
        is_pass=np.arange(len(row)) >= count,
        error=np.maximum(error, _LEAST_ERROR)[row],
    )


def choose(of_step: Numbers, of_pass: Numbers, observed: Observed) -> Numbers:
    """Take what belongs to each observation, from arrays with a row per configuration."""
    return np.concatenate([of_step, of_pass[observed.row[observed.is_pass]]])


def fit_formula(frame: Frame, setups: Setups, observed: Observed) -> Numbers:
    """Find the most probable logarithms of the parameters, from several starts.

    Returns:
        (parameters,).
    """
    from scipy.optimize import least_squares

    terms = frame.terms(setups)
    scale = np.hypot(_TYPICAL_MISFIT, observed.error)

    def residuals(logs: Numbers) -> Numbers:
        misfit = (choose(*frame.formula(logs, terms), observed) - observed.log_s) / scale
        return np.concatenate([_soften(misfit)[0], (logs - frame.means) / frame.deviations])

    def jacobian(logs: Numbers) -> Numbers:
        misfit = (choose(*frame.formula(logs, terms), observed) - observed.log_s) / scale
        slope = choose(*frame.slopes(logs, terms), observed)[:, :-2]
        slope = slope / scale[:, None]
        softened = _soften(misfit)[1]
        return np.vstack([softened[:, None] * slope, np.diag(1 / frame.deviations)])

    names = [*PRIORS]
    fits = []
    for moves in _STARTS.values():
        start = frame.means.copy()
        for name, move in moves.items():
            start[names.index(name)] += move
        fits.append(
            least_squares(
                residuals,
                start,
                jac=jacobian,
                method="lm",
                max_nfev=_MOST_CALLS,
                xtol=1e-4,
                ftol=1e-4,
            )
        )
    best: Numbers = min(fits, key=lambda fit: fit.cost).x
    return best


def _soften(misfit: Numbers) -> tuple[Numbers, Numbers]:
    """Give values whose squares are the soft-L1 loss of the misfit, and their slopes."""
    hypotenuse = np.sqrt(1 + misfit**2)
    # 2 (√(1 + r²) − 1), without the difference of nearly equal numbers
    softened = misfit * np.sqrt(2 / (1 + hypotenuse))
    slope = np.sqrt((1 + hypotenuse) / 2) / hypotenuse
    return softened, slope
