"""Performance of configurations that were not measured, and choice of the next one to measure.

The driver and readers; imports pandas and SciPy in functions alone. From the table of trials to
arrays and back; between `setups` and `choice` no file knows frames. In reading order:

    setups          settings of configurations by column, what was measured of them, predictions
    memory          need of memory: a line through the peaks of other micro-batches
    formula         step time by a formula with few parameters, and its derivatives
    offsets         categories and numbers of users as factors of compute and exchange
    physics         the most probable parameters of the formula
    residual        Gaussian process of the residual
    posterior       formula and residual, conditioned on measurements
    limits          configurations that can't be predicted, and why
    step_time       the model of the step time: fit and predict
    candidate_costs  costs of candidates as functions of their step times, and their estimates
    gain            expected gain of a measurement, and chance that it beats the answer
    first_points    the cheap first points, far apart
    choice          the next points by gain per accelerator-second
    payloads        bytes of exchanges, as shares of those without compression
    encoding        settings and measurements as arrays of the model; their reach
    model           performance of configurations by the trials of a study
    asked           configurations that a user asks for, as settings
"""

from __future__ import annotations

from dtsweep.predict.model import PerformanceModel, performance_model

__all__ = ["PerformanceModel", "performance_model"]


def __dir__() -> list[str]:
    """Offer the public names alone, as in a notebook's completion."""
    return sorted(__all__)
