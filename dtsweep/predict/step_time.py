"""Model of the step time: the formula, and a Gaussian process for its residual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtsweep.predict.limits import bounds_of
from dtsweep.predict.physics import fit_formula, observed_of, physics_frame
from dtsweep.predict.posterior import Linear, Posterior, condition, evidence_of
from dtsweep.predict.residual import ResidualAxes, fit_strengths
from dtsweep.predict.setups import NORMAL_90, MeasuredSetups, Numbers, Prediction, Setups

_FEWEST_LEFT_OUT = 5
"""Configurations, below which errors are not calibrated by leaving each out."""

_FEWEST_FREEDOMS = 3
"""Degrees of freedom of errors that few configurations estimate."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimeModel:
    """Step time of any configuration, as measured ones suggest."""

    setups: Setups
    """Configurations that were measured."""

    measured: MeasuredSetups
    """Measurements of them."""

    posterior: Posterior
    """Formula and residual, conditioned on the measurements."""

    calibration: float
    """Factor of the errors, so that intervals cover configurations that were left out."""

    def predict(self, setups: Setups) -> Prediction:
        """Predict the step times of n configurations, within the bounds of `bounds_of`.

        A mean beyond a bound becomes the bound. Its interval then reaches over what is between the
        bounds, because the model contradicts what was measured.
        """
        mean, deviation, correlation = self.posterior.log_step(setups)
        low, high = bounds_of(setups, self.setups, np.log(self.measured.step_s))
        bounded = np.clip(mean, low, high)
        error = self.calibration * deviation
        moved = np.abs(bounded - mean)
        between = np.where(np.isfinite(high - low), high - low, moved)
        error = np.where(moved > 0, np.maximum(error, between / NORMAL_90), error)
        return Prediction(log_step_s=bounded, error=error, distance=1 - correlation)

    def with_measured(self, setups: Setups, log_step_s: Numbers) -> StepTimeModel:
        """Condition the model on step times of k more configurations, without a fit.

        Args:
            setups: the configurations.
            log_step_s: (k,) logarithms of their step times in seconds, measured or believed.
        """
        count = len(setups)
        launches = int(np.max(self.measured.launch)) + 1 + np.arange(count)
        measured = MeasuredSetups(
            step_s=np.concatenate([self.measured.step_s, np.exp(log_step_s)]),
            error=np.concatenate([self.measured.error, np.zeros(count)]),
            pass_s=np.concatenate([self.measured.pass_s, np.full(count, np.nan)]),
            launch=np.concatenate([self.measured.launch, launches]),
        )
        every = self.setups.followed_by(setups)
        before = self.posterior
        return StepTimeModel(
            setups=every,
            measured=measured,
            posterior=condition(
                before.linear, before.axes, before.strengths, setups=every, measured=measured
            ),
            calibration=self.calibration,
        )


def fit_step_time(setups: Setups, measured: MeasuredSetups) -> StepTimeModel:
    """Fit the model to measurements; with few of them, priors decide.

    Args:
        setups: n ≥ 1 measured configurations; one that was measured twice has two rows.
        measured: their step times.

    Raises:
        ValueError: nothing was measured, or a time is not positive and finite.
    """
    times = measured.step_s
    if len(times) == 0 or not np.all(np.isfinite(times) & (times > 0)):
        raise ValueError("the model of step times needs at least one, all positive and finite")
    frame = physics_frame(setups, measured)
    best = fit_formula(frame, setups, observed_of(measured))
    linear = Linear(frame=frame, best=best)
    axes = ResidualAxes(categories=tuple(setups.categories), numbers=tuple(setups.numbers))
    evidence = evidence_of(linear, axes, setups, measured)
    strengths = fit_strengths(evidence.shared, evidence.deviations)
    posterior = condition(linear, axes, strengths, setups=setups, measured=measured)
    return StepTimeModel(
        setups=setups,
        measured=measured,
        posterior=posterior,
        calibration=_calibration_of(posterior.standardised()),
    )


def _calibration_of(standardised: Numbers) -> float:
    """Factor by which errors grow, so that 90 % intervals cover what was left out.

    Args:
        standardised: (n,) errors of configurations that were left out, by their deviation.

    >>> [round(_calibration_of(np.full(1000, value)), 2) for value in (0.0, 3.29)]
    [1.0, 2.0]
    """
    from scipy.stats import t as student

    count = len(standardised)
    freedoms = max(count - 2, _FEWEST_FREEDOMS)
    few = float(student.ppf(0.95, freedoms)) / NORMAL_90
    if count < _FEWEST_LEFT_OUT:
        return few
    # the rank that a further one exceeds with probability 0.1
    rank = min(int(np.ceil(0.9 * (count + 1))), count)
    return few * max(1.0, float(np.sort(np.abs(standardised))[rank - 1]) / NORMAL_90)
