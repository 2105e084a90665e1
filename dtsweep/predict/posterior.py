"""Linear formula and Gaussian process, conditioned on measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.predict.formula import Terms
from dtsweep.predict.physics import Frame, Observed, choose, observed_of
from dtsweep.predict.residual import (
    SEPARATE,
    SMOOTH,
    Outputs,
    ResidualAxes,
    SharedFacts,
    Strengths,
    inverse_of,
    is_one_world,
    left_out,
    matern,
    weights_between,
)
from dtsweep.predict.setups import Flags, MeasuredSetups, Numbers, Setups


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """Formula made linear at the most probable parameters."""

    frame: Frame
    """Units, columns and priors of the formula."""

    best: Numbers
    """(parameters,) logarithms of the most probable parameters."""

    def at(self, terms: Terms) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
        """Prior means and derivatives of n configurations.

        Returns:
            The (n,) means of the logarithms of step time and pass time, in log seconds; and their
            (n, parameters + 2) derivatives, the last two by log compute and log exchange.
        """
        of_step, of_pass = self.frame.formula(self.best, terms)
        by_step, by_pass = self.frame.slopes(self.best, terms)
        move = np.append(self.frame.means - self.best, [0.0, 0.0])
        return (of_step + by_step @ move, of_pass + by_pass @ move), (by_step, by_pass)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Evidence:
    """Measurements, compared with the linear formula and with each other."""

    observed: Observed
    """Times that were measured."""

    deviations: Numbers
    """(observations,) of their logarithms from the prior mean."""

    slope: Numbers
    """(observations, parameters) derivatives."""

    outputs: Outputs
    """Slopes by compute and by exchange."""

    shared: SharedFacts
    """Distances and covariances of rows."""


def evidence_of(
    linear: Linear, axes: ResidualAxes, setups: Setups, measured: MeasuredSetups
) -> _Evidence:
    """Compare measurements with the linear formula and with each other."""
    observed = observed_of(measured)
    means, slopes = linear.at(linear.frame.terms(setups))
    slope = choose(*slopes, observed)
    outputs = _outputs(slope, observed.is_pass)
    squares = axes.squares(setups, setups)
    weights = weights_between(outputs, outputs)
    pairs = np.ix_(observed.row, observed.row)
    is_equal = np.all(squares == 0, axis=0)[pairs]
    is_one_launch = (measured.launch[:, None] == measured.launch)[pairs]
    separate = [is_one_world(squares)[pairs] * weights[1], is_equal * weights[2]]
    separate.append(is_one_launch * weights[2])
    scaled = slope[:, :-2] * linear.frame.deviations
    return _Evidence(
        observed=observed,
        deviations=observed.log_s - choose(*means, observed),
        slope=slope[:, :-2],
        outputs=outputs,
        shared=SharedFacts(
            squares=squares,
            parts=axes.parts,
            row=observed.row,
            weights=weights,
            separate=np.array(separate),
            fixed=scaled @ scaled.T + np.diag(observed.error**2),
        ),
    )


def _outputs(slope: Numbers, is_pass: Flags) -> Outputs:
    return Outputs(by_compute=slope[:, -2], by_exchange=slope[:, -1], is_pass=is_pass)


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """Distribution of log step times, given measurements."""

    linear: Linear
    """Formula."""

    axes: ResidualAxes
    """Space of the residual."""

    strengths: Strengths
    """Hyper-parameters of the residual."""

    setups: Setups
    """Configurations that were measured."""

    evidence: _Evidence
    """Measurements of them."""

    factor: Numbers
    """(observations, observations) lower Cholesky factor of the covariance."""

    weights: Numbers
    """(observations,) of what a prediction shares with each observation."""

    def log_step(self, setups: Setups) -> tuple[Numbers, Numbers, Numbers]:
        """Mean and standard deviation of n log step times, and the largest correlation.

        The standard deviation includes the next launch's. The correlation is of residuals with
        those of a measured configuration: 1 at it.
        """
        from scipy.linalg import solve_triangular

        means, slopes = self.linear.at(self.linear.frame.terms(setups))
        observed = self.evidence.observed
        outputs = _outputs(slopes[0], np.zeros(len(setups), dtype=np.bool_))
        squares = self.axes.squares(setups, self.setups)
        weights = weights_between(outputs, self.evidence.outputs)
        separate = self.strengths.variances(SEPARATE)
        shared = separate[0] * is_one_world(squares)[:, observed.row] * weights[1]
        shared += separate[1] * np.all(squares == 0, axis=0)[:, observed.row] * weights[2]
        prior = separate[0] * outputs.by_exchange**2 + separate[1]
        factors = (outputs.by_compute**2, outputs.by_exchange**2, 1.0)
        variances = self.strengths.variances(SMOOTH)
        lengths = self.strengths.lengths
        masks = self.axes.parts
        correlations = [matern(squares[mask], lengths[mask])[0] for mask in masks]
        for part, correlation in enumerate(correlations):
            shared += variances[part] * weights[part] * correlation[:, observed.row]
            prior += variances[part] * factors[part]
        scaled = slopes[0][:, :-2] * self.linear.frame.deviations**2
        shared += scaled @ self.evidence.slope.T
        prior += np.sum(scaled * slopes[0][:, :-2], axis=1)
        whitened = solve_triangular(self.factor, shared.T, lower=True)
        variance = np.maximum(prior - np.sum(whitened**2, axis=0), 0) + separate[2]
        # the last part depends on all axes
        nearest = np.max(correlations[-1], axis=1)
        return means[0] + shared @ self.weights, np.sqrt(variance), nearest

    def standardised(self) -> Numbers:
        """Errors of the step times, each predicted from other configurations, by its deviation."""
        groups = np.argmax(np.all(self.evidence.shared.squares == 0, axis=0), axis=1)
        observed = self.evidence.observed
        return left_out(
            inverse_of(self.factor),
            self.evidence.deviations,
            groups=groups[observed.row],
            is_pass=observed.is_pass,
        )


def condition(
    linear: Linear,
    axes: ResidualAxes,
    strengths: Strengths,
    *,
    setups: Setups,
    measured: MeasuredSetups,
) -> Posterior:
    """Condition the formula and the residual on measurements."""
    from scipy.linalg import cho_solve, cholesky

    evidence = evidence_of(linear, axes, setups, measured)
    factor = cholesky(evidence.shared.covariance(strengths), lower=True)
    return Posterior(
        linear=linear,
        axes=axes,
        strengths=strengths,
        setups=setups,
        evidence=evidence,
        factor=factor,
        weights=cho_solve((factor, True), evidence.deviations),
    )
