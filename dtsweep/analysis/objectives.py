"""Objectives of frontiers and goals: the direction of each column, and its precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import SweepError, nearest
from dtsweep.inference.contrasts import Contrasts, Rows, contrasts
from dtsweep.inference.spread import POINT, Launches, launches_of
from dtsweep.inference.turns import with_turns
from dtsweep.inference.variance import Numbers
from dtsweep.sweep.goal import FINAL_LOSS, TO_LOSS

if TYPE_CHECKING:
    import pandas as pd

MINIMIZED = ("latency_s",)
MAXIMIZED = ("samples_per_s",)
"""Objectives of the frontier, unless others are asked for."""

_EXACT = ("global_batch", "parameters", "flops_per_sample", "hosts")
"""Costs that follow from the settings and are equal in all launches."""


class Objective(NamedTuple):
    """A column that should be as small, or as large, as can be."""

    name: str
    maximize: bool
    is_exact: bool
    """True if it is set and not measured."""
    is_relative: bool
    """True if values are compared by ratio; columns that may be 0 or negative by difference."""

    def costs(self, column: pd.Series[float]) -> Numbers:
        """Give values as costs, smaller is better: logarithms where ratios count.

        Nan where a value is null.
        """
        values = np.asarray(column.to_numpy("float64", na_value=np.nan), dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            costs = np.asarray(np.log(values) if self.is_relative else values, dtype=np.float64)
        if self.maximize:
            return -costs
        return costs


@dataclass(frozen=True, eq=False)
class Cost:
    """One objective of the points of one environment, smaller is better."""

    launches: Launches
    """Of costs; where it is exact, the same in each."""
    is_exact: bool = False
    is_relative: bool = True
    """True if costs are logarithms."""

    @property
    def sizes(self) -> Numbers:
        """(points,) sizes of values that shares are of; 1 where costs are logarithms."""
        means = self.launches.point_means
        if self.is_relative:
            return np.ones(len(means))
        return np.abs(means)

    def contrasts(self, first: Rows, second: Rows) -> Contrasts:
        """Difference in cost of each of the first to each of the second."""
        if not self.is_exact:
            return contrasts(self.launches, first, second)
        means = self.launches.point_means
        estimate = np.subtract.outer(means[first], means[second])
        all_false = np.zeros(estimate.shape, dtype=np.bool_)
        return Contrasts(
            estimate=estimate,
            half_width=np.zeros(estimate.shape),
            degrees=np.full(estimate.shape, np.inf),
            paired=all_false,
            pooled=all_false,
            launches=np.ones(estimate.shape),
            assumed_sigma=np.full(estimate.shape, np.nan),
            in_turn=all_false,
        )


def read_objectives(
    points: pd.DataFrame,
    *,
    minimize: Sequence[str] = MINIMIZED,
    maximize: Sequence[str] = MAXIMIZED,
) -> tuple[Objective, ...]:
    """Look objectives up in the columns of points.

    Raises:
        SweepError: a name is not a column of numbers, or stands twice; there is none.
    """
    import pandas as pd

    names = [*minimize, *maximize]
    if not names:
        raise SweepError(
            "a frontier needs an objective: minimize or maximize a column, such as latency_s"
        )
    numbers = [
        str(column) for column in points.columns if pd.api.types.is_numeric_dtype(points[column])
    ]
    exact = {*setting_columns(points), *_EXACT}
    for name in names:
        if name not in numbers:
            hint = "; docs/columns.md lists what is measured"
            if suggestion := nearest(name, numbers):
                hint = f"; did you mean {suggestion!r}?"
            raise SweepError(f"objective {name!r} is not a column of numbers{hint}")
        if names.count(name) > 1:
            raise SweepError(f"objective {name!r} is given twice; minimize or maximize it, once")
    return tuple(
        Objective(
            name,
            name in maximize,
            name in exact,
            is_relative=not (points[name].astype("float64") <= 0).any(),
        )
        for name in names
    )


def costs_of(points: pd.DataFrame, objectives: Sequence[Objective]) -> Numbers:
    """Give points as costs, (points, objectives); nan where one is null."""
    return np.column_stack([objective.costs(points[objective.name]) for objective in objectives])


def cost_of(trials: pd.DataFrame, objective: Objective) -> Cost:
    """Arrange one objective by point and launch; of points in turn, as `logarithms_of`."""
    values = trials[objective.name].astype("float64")
    errors = trials.reindex(columns=[f"{objective.name}_error"]).iloc[:, 0].astype("float64")
    columns = trials[[*POINT, "launch"]].assign(
        value=objective.costs(values),
        value_error=errors / values if objective.is_relative else errors,
    )
    if objective.is_relative:
        sign = -1 if objective.maximize else 1
        columns = with_turns(columns, trials, objective.name, sign=sign)
    # How far seeds differ is not known in general.
    has_prior = objective.is_relative and objective.name not in (*TO_LOSS, FINAL_LOSS)
    launches = launches_of(columns, "value", has_prior=has_prior)
    if objective.is_exact:
        launches = replace(launches, within_variance=np.zeros(len(launches.within_variance)))
    return Cost(launches, objective.is_exact, objective.is_relative)
