"""Gunther's Universal Scalability Law (1993), fitted to the sizes of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.ladders import Per
from dtsweep.analysis.scaling import WORTH, check_worth, group_row, group_table, speed_up_covariance
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Reason
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("contention", "coherency", "peak", "pays_to")
_NAMES = [
    *(f"{name}{end}" for name in _NUMBERS for end in ("", "_low", "_high")),
    "peak_extrapolates",
    "pays_to_extrapolates",
    "residual",
    "errors",
    "contradicted",
    "reason",
    "sizes_needed",
]

_SIZES_NEEDED = 4
"""The base, a size for each parameter, and one that can contradict the law."""

_FARTHEST = 2.0**40
"""Workers up to which the law is asked whether one more pays."""

_LEAST = 1e-12
"""Distance in logarithms that is rounding."""

_CIRCLE = np.linspace(0, 2 * np.pi, 64, endpoint=False)
"""Directions in which the edge of what the data allow is looked at."""


def usl(frame: Frame, *, per: Per = "worker", worth: float = WORTH) -> pd.DataFrame:
    """Fit the Universal Scalability Law to groups of `scaling`.

    Throughput of n workers relative to one is n ÷ (1 + σ (n − 1) + κ n (n − 1)). Fitted are the
    logarithms of speed-ups by least squares, weighted by the errors that `difference` finds; the
    base's error is in all of them. The law needs `_SIZES_NEEDED` sizes.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        per: what a world is counted in: workers, or nodes.
        worth: what one more has to add, as a share of what each of the base does.

    Returns:
        One row per group: what `worthwhile` has of a group; `contention` (σ) and `coherency` (κ),
        from 0 to 1; `peak`, the size of the highest throughput, null where κ can't be distinguished
        from 0; `pays_to`, the smallest size from which one more adds less than `worth` by the law,
        null where it always adds more; `_low` and `_high` of each, its 95 % interval, null where
        there is no end; `peak_extrapolates`, `pays_to_extrapolates`: True where it lies outside the
        sizes measured (both are null there if the law is `contradicted`); `residual`, the distance
        of speed-ups from the law as a share; `errors`, what intervals go by: `launches`, or
        `residuals` where launches say nothing, or say that the law misses (`contradicted`, else
        False, or null); `reason`, why there is no fit, a code of `dtsweep.inference.verdicts`;
        `sizes_needed` by the law.

    Raises:
        SweepError: `per` is neither; `worth` is not from 0 to 1.
    """
    check_worth(worth)
    ladders = study_of(frame).ladders(per)
    rows, size = ladders.rows, ladders.size
    fits = []
    for group, group_rows in rows.groupby("group"):
        sizes = group_rows[size].to_numpy("float64")
        row = _row(sizes, ladders.compared[group], worth=worth)
        fits.append(group_row(group_rows, size=size) | row | {"sizes_needed": _SIZES_NEEDED})
    return group_table(fits, rows, columns=_NAMES)


def _row(sizes: Numbers, compared: Contrasts, *, worth: float) -> dict[str, Any]:
    """Columns of `usl` for one group."""
    if len(sizes) < _SIZES_NEEDED:
        return {"reason": Reason.TOO_FEW_SIZES}
    logs = compared.estimate[1:, 0]
    if np.isnan(logs).any():
        return {"reason": Reason.NOT_COMPARABLE}
    edge, row = _fitted(sizes, logs, speed_up_covariance(compared)[1:, 1:])
    row |= _range_of("contention", edge[:, 0]) | _range_of("coherency", edge[:, 1])
    pays_to = np.maximum(sizes[0], _pays_to(edge, base=sizes[0], worth=worth))
    row |= _size_range("pays_to", pays_to, sizes=sizes)
    if row["coherency_low"] > 0:
        row |= _size_range("peak", _peak(edge), sizes=sizes)
    if row["contradicted"]:
        # What a wrong law says beyond the measured sizes is worth nothing.
        for name in ("pays_to", "peak"):
            if row.get(f"{name}_extrapolates"):
                row |= dict.fromkeys((name, *(f"{name}_{end}" for end in ("low", "high"))))
    return row


def _rate(n: Any, contention: Any, coherency: Any) -> Any:
    """Throughput of n workers relative to one."""
    return n / (1 + contention * (n - 1) + coherency * n * (n - 1))


def _fitted(sizes: Numbers, logs: Numbers, covariance: Numbers) -> tuple[Numbers, dict[str, Any]]:
    """Fit the law by least squares, and find the parameters that the data do not exclude.

    Args:
        sizes: (n,) the base first.
        logs: (n − 1,) measured logarithms of speed-ups.
        covariance: (n − 1, n − 1) of their errors in units of 95 % half-widths: its diagonal has
            squared half-widths. If any is nan, all sizes are assumed to have the same error.

    Returns:
        The parameters, as `_edge` gives them, and columns of `usl`.
    """
    from scipy.optimize import curve_fit
    from scipy.stats import chi2

    def curve(n: Numbers, contention: float, coherency: float) -> Numbers:
        speed_ups: Numbers = _rate(n, contention, coherency) / _rate(
            sizes[0], contention, coherency
        )
        return np.log(speed_ups)

    is_known = not np.isnan(covariance).any()
    if not is_known:
        covariance = np.eye(len(logs)) + 1.0
    # No difference counts as known beyond rounding.
    rounding = max(covariance.max() * 1e-6, _LEAST**2)
    covariance = covariance + np.eye(len(logs)) * rounding
    best, spread = curve_fit(
        curve,
        sizes[1:],
        logs,
        p0=[0.01, 0.001],
        sigma=covariance,
        absolute_sigma=True,
        bounds=(0, 1),
        x_scale="jac",
        ftol=1e-13,
        xtol=1e-13,
        gtol=1e-13,
    )
    weights = np.linalg.inv(covariance)

    def distance_of(at: Numbers) -> float:
        misses = curve(sizes[1:], *at) - logs
        return float(misses @ weights @ misses)

    # A search nears a bound for ever.
    nearest = np.where(best < 1e-4, 0.0, best)
    if distance_of(nearest) <= distance_of(best):
        best = nearest
    distance = distance_of(best)
    free = len(logs) - len(best)
    contradicted = None
    if is_known:
        # A half-width is taken as 1.96 standard errors, which few launches make too short.
        contradicted = bool(distance * 1.96**2 > chi2.ppf(0.95, free))
    limit, errors = 1.0, "launches"
    if contradicted is not False:
        limit, errors = float(students_t(free)) ** 2 * distance / free, "residuals"
    return _edge(best, spread * limit), {
        "residual": float(np.sqrt(((curve(sizes[1:], *best) - logs) ** 2).sum() / free)),
        "errors": errors,
        "contradicted": contradicted,
    }


def _edge(best: Numbers, spread: Numbers) -> Numbers:
    """(cases, 2) best parameters, and the ellipse around them within their limits.

    The 95 % interval of a function monotonic in the parameters lies between its least and largest
    value here.
    """
    values, vectors = np.linalg.eigh(spread)
    circle = np.column_stack([np.cos(_CIRCLE), np.sin(_CIRCLE)])
    ellipse = circle * np.maximum(values, 0.0) ** 0.5 @ vectors.T
    return np.vstack([best, np.clip(best + ellipse, 0.0, 1.0)])


def _range_of(name: str, values: Numbers) -> dict[str, float]:
    """A number with its interval, from its values at the best fit and around it."""
    return {
        name: float(values[0]),
        f"{name}_low": float(values.min()),
        f"{name}_high": float(values.max()),
    }


def _size_range(name: str, values: Numbers, *, sizes: Numbers) -> dict[str, Any]:
    """A size with its interval, and whether it lies within the measured sizes.

    A value beyond the largest size considered is null.
    """
    row: dict[str, Any] = {
        key: value if value < _FARTHEST else None for key, value in _range_of(name, values).items()
    }
    if row[name] is not None:
        row[f"{name}_extrapolates"] = not sizes[0] <= row[name] <= sizes[-1]
    return row


def _peak(at: Numbers) -> Numbers:
    """Size of the highest throughput, by parameters (cases, 2)."""
    contention, coherency = at.T
    with np.errstate(divide="ignore"):
        peak: Numbers = np.maximum(1.0, ((1 - contention) / coherency) ** 0.5)
    return peak


def _pays_to(at: Numbers, *, base: float, worth: float) -> Numbers:
    """Smallest number of workers from which one more adds less than `worth`, by parameters."""
    contention, coherency = at.T
    least = worth * _rate(base, contention, coherency) / base
    low = np.zeros(len(at))
    high = np.full(len(at), _FARTHEST)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        gain = _rate(middle + 1, contention, coherency) - _rate(middle, contention, coherency)
        low, high = np.where(gain >= least, middle, low), np.where(gain >= least, high, middle)
    return high
