"""Sweeps of simulated noise: points with variance within windows and between launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dtsweep.inference.contrasts import contrasts
from dtsweep.inference.spread import Launches
from tests.frames import trials

ALIKE = [0.02] * 10
"""Standard errors of windows, as shares of the mean."""


def sweeps(
    windows: Sequence[float],
    *,
    launches: int,
    together: bool,
    added: float | Sequence[float] = 0.0,
    apart: float = 0.0,
    count: int = 250,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Draw sweeps of points whose rates are equal but for the first point's.

    Args:
        windows: standard error of each point's windows.
        launches: of each point.
        together: a launch measures all points, and shifts them all alike by 3 %; else each point
            has its own.
        added: standard deviation of what a launch adds to each point by itself, or one for each.
        apart: logarithm of the first point's true rate over the others'.
        count: sweeps.

    Yields:
        (points, launches) logarithms of launch means, nan where a launch is of another point; and
        (points,) true variances of windows.
    """
    rng = np.random.default_rng(1)
    error = np.array(windows)
    for _ in range(count):
        logs = rng.normal(0, 1, (len(error), launches)) * np.hypot(error, added)[:, None]
        logs[0] += apart
        if together:
            logs += rng.normal(0, 0.03, launches)
        else:
            own = np.full((len(error), len(error), launches), np.nan)
            own[np.arange(len(error)), np.arange(len(error))] = logs
            logs = own.reshape(len(error), -1)
        yield logs, error**2


def launches_in(logs: NDArray[np.float64], within: NDArray[np.float64]) -> Launches:
    """Arrange one sweep as the analysis does."""
    return Launches(pd.DataFrame(index=range(len(logs))), logs, within)


def frame_of(logs: NDArray[np.float64], errors: NDArray[np.float64]) -> pd.DataFrame:
    """Make the trials of one sweep: points "0", "1" … with rates of these logarithms.

    Latencies match the rates.

    Args:
        logs: (points, launches), nan where a launch did not measure a point.
        errors: (points,) standard errors within a launch, as shares.
    """
    points, launches = (~np.isnan(logs)).nonzero()
    rates, shares = np.exp(logs[points, launches]), errors[points]
    return (
        trials({})
        .loc[[0] * len(rates)]
        .reset_index(drop=True)
        .assign(
            point_id=points.astype(str),
            session=launches.astype(str),
            trial_id=[f"{point}.{launch}" for point, launch in zip(points, launches, strict=True)],
            samples_per_s=rates,
            samples_per_s_error=rates * shares,
            latency_s=10 / rates,
            latency_s_error=10 / rates * shares,
        )
    )


def significant(windows: Sequence[float], *, claimed: float = 1.0, **drawn: Any) -> float:
    """Share of sweeps in which the first two points are told apart.

    Windows may claim another error than they have.
    """
    verdicts = []
    for logs, within in sweeps(windows, **drawn):
        found = contrasts(launches_in(logs, within * claimed**2), np.array([0]), np.array([1]))
        verdicts.append(abs(found.estimate[0, 0]) > found.half_width[0, 0])
    return float(np.mean(verdicts))
