"""Forecast of the rounds that a question will take, by simulation from the launches so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.pairwise import PairTest
from dtsweep.analysis.recommend import properties_of, selections_in
from dtsweep.analysis.study import Study
from dtsweep.inference.rehearsal import Rehearsal, Rules, Windows, play
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import Numbers
from dtsweep.sweep.goal import Goal

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.dominance import Rows

DRAWS = 40
"""Simulated runs."""

PLAYED = 40
"""Best points that are simulated; others are far from any answer."""


@dataclass(frozen=True)
class Machine:
    """Draws launches of points whose true costs were drawn by their present errors."""

    costs: Numbers
    """(points,) true costs."""
    between: float
    """Standard deviation between launches."""
    rng: np.random.Generator

    def __call__(self, points: Rows, number: int, error: float) -> Numbers:
        """Costs of points in a launch, with windows of this standard error."""
        del number  # every launch is like the others
        sigma = np.hypot(self.between, error)
        costs: Numbers = self.costs[points] + self.rng.normal(0, sigma, len(points))
        return costs


def forecast(
    study: Study, goal: Goal, windows: Windows, *, max_launches: int, seed: int = 0
) -> list[Rehearsal]:
    """Simulate the rest of a run.

    Args:
        study: of the trials so far.
        goal: what counts.
        windows: of the rounds.
        max_launches: of a point.
        seed: of the draws.

    Returns:
        Simulated runs of all models and environments, `DRAWS` of each.

    Raises:
        SweepError: the goal can't be read.
    """
    rng = np.random.default_rng(seed)
    rules = Rules(float(np.log1p(study.zone)), study.level, max_launches)
    played = []
    for candidates, test, _ in selections_in(study, goal):
        if test.objective.is_exact or not test.objective.is_relative:
            continue
        rows = _best(test, candidates)
        played += [_played(test, rows, windows, rules, rng=rng) for _ in range(DRAWS)]
    return played


def _best(test: PairTest, rows: pd.DataFrame) -> pd.DataFrame:
    costs = test.cost.launches.point_means[test.numbers_of(rows)]
    return rows.iloc[np.argsort(costs, kind="stable")[:PLAYED]]


def _played(
    test: PairTest,
    rows: pd.DataFrame,
    windows: Windows,
    rules: Rules,
    *,
    rng: np.random.Generator,
) -> Rehearsal:
    """One simulated rest of a run."""
    numbers = test.numbers_of(rows)
    launches = test.cost.launches
    variance, between = _variance(launches)
    truth = launches.point_means[numbers] + rng.normal(
        0, (variance[numbers] / launches.counts[numbers]) ** 0.5
    )
    means = launches.means[numbers]
    measured = ~np.isnan(means)
    within = np.where(measured, np.nan_to_num(launches.within_variance[numbers])[:, None], 0.0)
    kept = measured.any(axis=0)
    rehearsal = Rehearsal(means=means[:, kept], within=within[:, kept])
    machine = Machine(truth, between, rng)
    return play(rehearsal, machine, properties_of(rows, test), windows, rules)


def _variance(launches: Launches) -> tuple[Numbers, float]:
    """Variance of a launch of each point, and the standard deviation between launches."""
    pool = launches.pool
    between = ASSUMED_SIGMA
    if pool is not None:
        between = max(0.0, pool.between_variance) ** 0.5
    return between**2 + np.nan_to_num(launches.within_variance), between
