"""Compares points with one of them by one objective, also where each has a single launch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.dominance import Rows, Truth
from dtsweep.analysis.objectives import Cost, Objective, cost_of
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.selection import Differences, differences_of
from dtsweep.inference.spread import POINT
from dtsweep.inference.variance import Numbers

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class PairTest:
    """Test of points of an environment against each other, by one objective."""

    objective: Objective
    cost: Cost
    drift: float | None
    """As `drift_of` gives it."""
    is_adjacent: Truth
    """(points,) True if launches followed each other, so that they may share a drift."""
    significant_drift: float
    """Drift that canaries show significantly, as a share."""

    def numbers_of(self, points: pd.DataFrame) -> Rows:
        """Rows of `cost.launches` of these points; -1 for a point that was not measured."""
        return np.asarray(self._index.get_indexer(_point_index(points)), dtype=np.intp)

    @functools.cached_property
    def _index(self) -> pd.MultiIndex:
        return _point_index(self.cost.launches.points)

    def differences(self, numbers: Rows) -> Differences:
        """Differences of points from each other.

        Two points without a test, with one launch each, differ by chance as if launches had
        `ASSUMED_SIGMA`, and by the drift that canaries can't exclude. Intervals by launches are
        wider by `drift_in`.
        """
        contrast = self.cost.contrasts(numbers, numbers)
        drift = self.drift_in(contrast, numbers, numbers)
        sizes = self.cost.sizes[numbers]
        untested = self._drift_effect(self.drift or 0.0, sizes[:, None], sizes[None, :])
        return differences_of(
            contrast,
            self.cost.launches,
            numbers,
            numbers,
            sizes=self.cost.sizes,
            drift=np.where(contrast.tested, drift, np.maximum(drift, untested)),
        )

    def zone(self, share: float, numbers: Rows) -> float:
        """Indifference zone in units of `cost`; of differences a share of the best point's size."""
        if self.objective.is_exact:
            return 0.0
        if self.objective.is_relative:
            return float(np.log1p(share))
        means = self.cost.launches.point_means[numbers]
        return share * abs(float(means.min()))

    def has_lasting_drift(self, contrast: Contrasts, first: Rows, second: Rows) -> Truth:
        """(first, second) True if launches of one point followed each other.

        Further launches then have the drift too. Launches that measured both points share it.
        """
        is_adjacent = np.logical_or.outer(self.is_adjacent[first], self.is_adjacent[second])
        lasting: Truth = is_adjacent & ~contrast.paired & (not self.cost.is_exact)
        return lasting

    def drift_in(self, contrast: Contrasts, first: Rows, second: Rows) -> Numbers:
        """(first, second) significant drift that the launches of two points can't average out.

        As in `difference`: that of a single launch, and of launches that followed each other. Two
        points that were measured in turn share the drift.
        """
        counts = self.cost.launches.counts
        is_single = np.logical_or.outer(counts[first] == 1, counts[second] == 1)
        is_drifted = self.has_lasting_drift(contrast, first, second)
        if not self.cost.is_exact:
            is_drifted |= is_single
        sizes = self.cost.sizes
        effect = self._drift_effect(
            self.significant_drift, sizes[first][:, None], sizes[second][None, :]
        )
        return np.where(is_drifted & ~contrast.in_turn, effect, 0.0)

    def _drift_effect(self, drift: float, sizes: Numbers, reference_sizes: Numbers) -> Numbers:
        """Effect of a drift on values of these sizes, in units of `cost`."""
        larger = np.maximum(sizes, reference_sizes)
        if not self.objective.is_relative:
            return drift * larger
        return np.full(larger.shape, np.log1p(drift))

    def ratios(
        self, points: pd.DataFrame, reference: pd.DataFrame, *, level: float
    ) -> dict[str, Numbers]:
        """Ratio of points to reference points in the objective, with its interval.

        One of the two sides is a single point.

        Args:
            points: rows of `over_launches`.
            reference: others.
            level: two-sided significance level of the interval.

        Returns:
            By the end of the column's name; differences, if a value may be 0 or below; nan where a
            point was not measured.
        """
        rows = self.numbers_of(points)
        columns = self.numbers_of(reference)
        if (rows < 0).any() or (columns < 0).any():
            return dict.fromkeys(("", "_low", "_high"), np.full(rows.size * columns.size, np.nan))
        contrast = self.cost.contrasts(rows, columns)
        sign = 1
        if self.objective.maximize:
            sign = -1
        estimate = sign * contrast.estimate.ravel()
        half_width = contrast.half_width_at(level) + self.drift_in(contrast, rows, columns)
        half_width = half_width.ravel()
        ends = {"": estimate, "_low": estimate - half_width, "_high": estimate + half_width}
        return {
            end: np.exp(value) if self.objective.is_relative else value
            for end, value in ends.items()
        }

    def assumed_sigma(self, points: pd.DataFrame, reference: pd.DataFrame) -> float | None:
        """Deviation between launches that is known in general and narrows an interval, or None."""
        contrast = self.cost.contrasts(self.numbers_of(points), self.numbers_of(reference))
        assumed = contrast.assumed_sigma[~np.isnan(contrast.assumed_sigma)]
        return float(assumed.max()) if assumed.size else None


def _point_index(points: pd.DataFrame) -> pd.MultiIndex:
    import pandas as pd

    return pd.MultiIndex.from_frame(points[[*POINT]].astype(object).fillna(""))


def comparison_of(
    trials: pd.DataFrame,
    objective: Objective,
    *,
    drift: float | None,
    significant_drift: float = 0.0,
) -> PairTest:
    """Prepare to compare points by an objective."""
    name = objective.name
    trials = trials.dropna(subset=[name])
    if objective.is_relative:
        # Of a point of another model it may be 0.
        trials = trials[trials[name].astype("float64") > 0]
    cost = cost_of(trials, objective)
    is_flagged = trials["flags"].map(
        lambda flags: flags is not None and "adjacent_launches" in flags
    )
    flagged = is_flagged.groupby([trials[key] for key in POINT], dropna=False, sort=False)
    return PairTest(
        objective=objective,
        cost=cost,
        drift=drift,
        is_adjacent=flagged.any().to_numpy("bool"),
        significant_drift=significant_drift,
    )
