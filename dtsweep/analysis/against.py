"""Points against another one: what each costs more, and how much of that is told, also by one launch of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtsweep.analysis.objectives import Cost, Objective
from dtsweep.analysis.spread import POINT
from dtsweep.analysis.standing import Rows, Truth
from dtsweep.analysis.variance import Numbers

if TYPE_CHECKING:
    import pandas as pd


class Compared(NamedTuple):
    """Points against another one."""

    excess: Numbers
    """What each costs more."""
    reach: Numbers
    """How much more is told: half of the 95 % interval by launches, or by the windows and the drift of one each."""
    is_tested: Truth
    """Whether by launches."""


def compared(cost: Cost, numbers: Rows, other: Rows, *, drift: float | None) -> Compared:
    """Compare points with another one, as far as launches tell.

    Two with one launch each, where nothing says how far launches differ, are told apart by the intervals within them
    and by the drift of the machine; an error that is not known counts as the largest that is.
    """
    found = cost.contrasts(numbers, other)
    is_tested, within = found.tested[:, 0], cost.launches.within
    within = np.where(np.isnan(within), np.nanmax(within, initial=0.0), within)
    windows = 1.96 * (within[numbers] + within[other]) ** 0.5
    drifted = np.inf if drift is None else np.log1p(drift)
    reach = np.where(is_tested, found.reach[:, 0], np.maximum(windows, drifted))
    return Compared(found.estimate[:, 0], reach, is_tested)


def numbers_of(points: pd.DataFrame, cost: Cost) -> Rows:
    """Rows of `cost.launches` that points have; -1 where theirs was not measured."""
    import pandas as pd

    frames = (cost.launches.points, points)
    known, asked = (pd.MultiIndex.from_frame(rows[[*POINT]].astype(object).fillna("")) for rows in frames)
    return np.asarray(known.get_indexer(asked), dtype=np.intp)


def ratios(points: pd.DataFrame, others: pd.DataFrame, cost: Cost, objective: Objective) -> dict[str, Numbers]:
    """The objective of points over that of others, one of them a single point, with its 95 % interval.

    Returns:
        By the end of the column's name; less it, where one may be 0 or below; nan where it was not measured.
    """
    rows, columns = numbers_of(points, cost), numbers_of(others, cost)
    if (rows < 0).any() or (columns < 0).any():
        return dict.fromkeys(("", "_low", "_high"), np.full(rows.size * columns.size, np.nan))
    found = cost.contrasts(rows, columns)
    estimate, reach = (-1 if objective.maximize else 1) * found.estimate.ravel(), found.reach.ravel()
    ends = {"": estimate, "_low": estimate - reach, "_high": estimate + reach}
    return {end: np.exp(value) if objective.is_relative else value for end, value in ends.items()}
