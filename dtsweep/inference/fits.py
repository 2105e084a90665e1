"""Fit of curves with one or two parameters in [0, 1] to logarithms with correlated errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dtsweep.inference.variance import Numbers
from dtsweep.measure.statistics import students_t

_RAYS = 64
"""Directions in which the edge of what the data allow is looked for."""

_LEAST = 1e-12
"""Distance in logarithms that is rounding."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Estimate of a curve's parameters."""

    best: Numbers
    """(parameters,)."""
    edge: Numbers
    """Best parameters, then the edge of what the data allow: (cases, parameters).

    The 95 % interval of a function monotonic in the parameters lies between its least and largest
    value here.
    """
    residual: float
    """Distance from the curve, root of the mean square by degrees of freedom."""
    errors: str
    """Source of the margin: `launches`; `residuals` if errors are unknown or the fit is bad."""
    contradicted: bool | None
    """True if the curve misses by more than the errors explain; None where they are not known."""


def fitted(
    curve: Callable[[Numbers], Numbers], values: Numbers, *, covariance: Numbers, parameters: int
) -> Fit:
    """Fit a curve by least squares, and find the parameters that the data do not exclude.

    The edge is the one of the likelihood ratio (profile intervals), which keeps to parameters from
    0 to 1.

    Args:
        curve: (cases, parameters) to logarithms (cases, values).
        values: (values,) measured logarithms, more than parameters.
        covariance: (values, values) of the errors in units of 95 % half-widths: its diagonal has
            squared half-widths. If any is nan, all values and their common base are assumed to have
            the same error.
        parameters: how many.
    """
    free = len(values) - parameters
    is_known = not np.isnan(covariance).any()
    root = _inverse_root(covariance if is_known else np.eye(len(values)) + 1.0)
    best = _best(lambda at: root @ (curve(at[None])[0] - values), parameters)

    def distances(at: Numbers) -> Numbers:
        squares: Numbers = (((curve(at) - values) @ root.T) ** 2).sum(axis=1)
        return squares

    least = float(distances(best[None])[0])
    contradicted = None
    if is_known:
        contradicted = _is_contradicted(least, free)
    by_residuals = contradicted is not False
    limit = 1.0
    if by_residuals:
        limit = float(students_t(free)) ** 2 * least / free
    residual = float(np.sqrt(((curve(best[None])[0] - values) ** 2).sum() / free))
    edge = _edge(
        lambda at: distances(at) - least - limit,
        best,
        curve=lambda at: curve(at) @ root.T,
        limit=limit,
    )
    return Fit(best, edge, residual, "residuals" if by_residuals else "launches", contradicted)


def _inverse_root(covariance: Numbers) -> Numbers:
    """Matrix that makes errors independent, each with a half-width of 1.

    No difference counts as known beyond rounding.
    """
    values, vectors = np.linalg.eigh(covariance)
    root: Numbers = (vectors / np.maximum(values, max(values.max() * 1e-6, _LEAST**2)) ** 0.5).T
    return root


def _is_contradicted(least: float, free: int) -> bool:
    """True if the distance from the curve exceeds the 95 % quantile of noise.

    Each half-width is taken as 1.96 standard errors. That is exact for known errors; with errors
    that are estimated from few launches, the test rejects somewhat too often.
    """
    from scipy.stats import chi2

    return bool(least * 1.96**2 > chi2.ppf(0.95, free))


def _best(errors: Callable[[Numbers], Numbers], parameters: int) -> Numbers:
    """Parameters of the least sum of squared errors."""
    from scipy.optimize import least_squares

    start = np.full(parameters, 0.01)
    inside: Numbers = least_squares(
        errors, start, bounds=(0, 1), x_scale="jac", xtol=1e-13, ftol=1e-13, gtol=1e-13
    ).x
    # A search nears a bound for ever.
    at_bounds = np.where(np.minimum(inside, 1 - inside) < 1e-4, np.round(inside), inside)
    if (errors(at_bounds) ** 2).sum() <= (errors(inside) ** 2).sum():
        return at_bounds
    return inside


def _edge(
    excess: Callable[[Numbers], Numbers],
    best: Numbers,
    *,
    curve: Callable[[Numbers], Numbers],
    limit: float,
) -> Numbers:
    """Follow rays from the best parameters, then along the bounds, to where `excess` crosses 0."""
    size = len(best)
    angles = np.arange(_RAYS) * 2 * np.pi / _RAYS
    if size == 2:
        rays = np.column_stack([np.cos(angles), np.sin(angles)])
    else:
        rays = np.array([[1.0], [-1.0]])
    step = 1e-6 * np.maximum(best, 1e-3)
    slopes = ((curve(best + np.diag(step)) - curve(best[None])) / step[:, None]).T
    # As far in each direction as a straight line would go.
    values, vectors = np.linalg.eigh(slopes.T @ slopes)
    rays = rays @ (vectors / np.maximum(values, values.max() * 1e-12) ** 0.5).T * limit**0.5
    inside = np.zeros((len(rays), 1))
    outside = np.full((len(rays), 1), 1e4)
    for _ in range(45):
        middle = (inside + outside) / 2
        is_over = excess(np.clip(best + middle * rays, 0, 1))[:, None] > 0
        inside, outside = np.where(is_over, inside, middle), np.where(is_over, middle, outside)
    return np.vstack([best[None], np.clip(best + inside * rays, 0, 1)])
