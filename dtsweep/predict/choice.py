"""Next points of a search, by gain per accelerator-second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.predict.candidate_costs import Estimates, Rows
from dtsweep.predict.setups import Numbers, Prediction, Setups
from dtsweep.predict.step_time import StepTimeModel

_GainOf = Callable[[Estimates], Numbers]
"""Gives the (n,) gains of candidates, as `expected_gain` and `expected_improvement` do."""

_EARLY_POWER = 1.0
"""Power of the cost by which a gain is divided while gains are large."""

_LATE_POWER = 0.5
"""Power later, when what is left to gain may be expensive."""

_EARLY_SHARE = 0.01
"""Largest gain as a share of the hypervolume, above which gains are large."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Charges:
    """Accelerator-seconds of a trial of each of n candidates."""

    workers: Numbers
    """(n,) accelerators that a trial holds."""

    world: Rows
    """(n,) number of the world; a live session measures all candidates of its world."""

    start_s: Numbers
    """(n,) seconds until a session is live."""

    rest_s: Numbers
    """(n,) seconds of a trial without the steps of its window: build, warm-up, checks."""

    steps: float
    """Steps of a window."""

    least_s: float = 0.0
    """Least seconds of a window."""

    def of(self, log_step_s: Numbers, *, live: int | None = None) -> Numbers:
        """Add up a trial: start, rest and window, times the workers.

        Args:
            log_step_s: (n,) logarithms of step times in seconds.
            live: world whose session is live; its candidates need no start.

        Returns:
            (n,) accelerator-seconds.
        """
        window = np.maximum(self.steps * np.exp(log_step_s), self.least_s)
        start = np.where(self.world == live, 0.0, self.start_s)
        seconds: Numbers = self.workers * (start + self.rest_s + window)
        return seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchProgress:
    """Trials of a search so far."""

    measured: Rows
    """(m,) numbers of the measured candidates, each once."""

    log_step_s: Numbers
    """(m,) logarithms of their step times in seconds, means of several trials."""

    chance: Numbers
    """(n,) probability that a trial ends with a measurement; 0 where one failed for good."""

    live: int | None = None
    """World of the live session; None where no session is live."""

    def estimates(self, prediction: Prediction) -> Estimates:
        """Put what was measured in the place of what is predicted."""
        values = prediction.log_step_s.copy()
        values[self.measured] = self.log_step_s
        is_measured = np.zeros(len(values), dtype=np.bool_)
        is_measured[self.measured] = True
        return Estimates(
            log_step_s=values,
            error=np.maximum(prediction.error, 1e-9),
            is_measured=is_measured,
            chance=self.chance,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Candidates of a search: settings, cost of a trial, and worth."""

    setups: Setups
    """Settings of n candidates."""

    charges: Charges
    """Accelerator-seconds of a trial of each."""

    gain_of: _GainOf
    """Gains of all candidates by estimates."""


def cost_power(largest_share: float) -> float:
    """Choose the power of the cost: less weight on the cost once large gains are found.

    Args:
        largest_share: largest gain of a candidate, as a share of the hypervolume.

    >>> cost_power(0.2), cost_power(0.002)
    (1.0, 0.5)
    """
    return _EARLY_POWER if largest_share > _EARLY_SHARE else _LATE_POWER


def next_points(
    pool: Pool,
    model: StepTimeModel,
    *,
    progress: SearchProgress,
    power: float = _EARLY_POWER,
    most: int = 1,
) -> Rows:
    """Choose the next points: the best one, and more of its world while they are the best.

    After each point its prediction is believed, so that the next one tells something else. The
    batch ends where a point of another world has the larger gain by cost, its start included.

    Args:
        pool: n candidates.
        model: fitted to what was measured.
        progress: of the search.
        power: of the cost, by which gains are divided.
        most: points to choose.

    Returns:
        (points,) numbers of candidates of one world, in order; none where no candidate gains.
    """
    chosen: list[int] = []
    while len(chosen) < most:
        estimates = progress.estimates(model.predict(pool.setups))
        cost = pool.charges.of(estimates.log_step_s, live=progress.live)
        gain = pool.gain_of(estimates)
        if not (gain > 0).any():
            break
        # Logarithms: tiny gains by large costs would vanish.
        with np.errstate(divide="ignore"):
            score = np.log(gain) - power * np.log(cost)
        row = int(score.argmax())
        world = int(pool.charges.world[row])
        if chosen and world != progress.live:
            break
        chosen.append(row)
        believed = estimates.log_step_s[[row]]
        model = model.with_measured(pool.setups.take([row]), believed)
        progress = replace(
            progress,
            measured=np.append(progress.measured, row),
            log_step_s=np.append(progress.log_step_s, believed),
            live=world,
        )
    return np.array(chosen, dtype=np.int64)
