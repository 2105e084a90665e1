"""Launches of points in one environment, the variance between them, and its degrees of freedom."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.inference.variance import Numbers, Pool, pooled_apart, pooled_together

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

POINT = ("point_id", "env_id", "hosts")
"""Columns equal in all launches of a point.

The same point on other hardware or on more hosts is another job.
"""


@dataclass(frozen=True, eq=False)
class Launches:
    """One measured quantity of the points of one environment, launch by launch."""

    points: pd.DataFrame
    """The columns `POINT`, a row per point."""
    means: Numbers
    """(points, launches), nan where a launch did not measure a point."""
    within: Numbers
    """(points,) variance of a mean within its launch; nan where it is not known of all."""

    @cached_property
    def there(self) -> NDArray[np.bool_]:
        """(points, launches), True where a launch measured a point."""
        return ~np.isnan(self.means)

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """(points,) launches that measured a point."""
        counts: NDArray[np.intp] = self.there.sum(axis=1)
        return counts

    @cached_property
    def centres(self) -> Numbers:
        """(points,) mean over a point's launches."""
        centres: Numbers = np.nansum(self.means, axis=1) / self.counts
        return centres

    @cached_property
    def left(self) -> Numbers:
        """(points, launches) distance from that mean; 0 where a launch did not measure a point."""
        return np.where(self.there, self.means - self.centres[:, None], 0.0)

    @cached_property
    def squares(self) -> Numbers:
        """(points,) sum of the squares of these distances."""
        squares: Numbers = (self.left**2).sum(axis=1)
        return squares

    @cached_property
    def apart(self) -> Pool | None:
        """Between-launch variance, pooled over points with several launches (unpaired).

        None where there are none of known variance.
        """
        kept = (self.counts > 1) & ~np.isnan(self.within)
        if not kept.any():
            return None
        degrees = (self.counts[kept] - 1).astype("float64")
        return pooled_apart(
            self.squares[kept], degrees, self.within[kept], counted=degrees_of(self.there[kept])
        )

    @cached_property
    def together(self) -> Pool | None:
        """Between-launch variance after removing each launch's own effect (paired).

        None where none share several launches.
        """
        there = self.there & ~np.isnan(self.within)[:, None]
        before = -1
        while before != there.sum():
            before = there.sum()
            there = there & (there.sum(axis=0) > 1)
            there = there & (there.sum(axis=1, keepdims=True) > 1)
        rows = there.any(axis=1)
        columns = there.any(axis=0)
        if not rows.any():
            return None
        there = there[rows][:, columns]
        # What is left of the cells when each point has a level, and each launch one beside those of
        # its set.
        counted = int(there.sum()) - len(there) - degrees_of(there)
        means = np.where(there, self.means[rows][:, columns], np.nan)
        return pooled_together(means, self.within[rows], counted=counted)


def of_environment(trials: pd.DataFrame, env_id: Any) -> pd.DataFrame:
    """Select the trials of an environment; null is one, too."""
    import pandas as pd

    return trials[trials["env_id"].isna() if pd.isna(env_id) else trials["env_id"] == env_id]


def launches_of(trials: pd.DataFrame, of: str, *, relative: bool = False) -> Launches:
    """Arrange a measured column by point and launch.

    `Launches` pools what launches add when it is asked for.

    Args:
        trials: of one environment, one row per launch of a point: `POINT`, `launch`, `of` and
            `<of>_error`, its standard error within the launch. Rows where `of` is null are left
            out.
        of: a measured column.
        relative: as shares of the point's mean; else as it is.
    """
    trials = trials[[*POINT, "launch", of, f"{of}_error"]].dropna(subset=[of])
    groups = trials.groupby(list(POINT), dropna=False, sort=False)
    numbers = groups.ngroup()
    points = trials.loc[~numbers.duplicated(), list(POINT)].reset_index(drop=True)
    codes = numbers.to_numpy()
    # Where all are null pandas makes numbers of them, which match no text.
    points = points.astype({"point_id": object, "env_id": object})
    launches = trials["launch"].factorize()[0]
    if relative:
        unit = groups[of].transform("mean").to_numpy("float64")
    else:
        unit = np.ones(len(trials))
    shape = (len(points), int(launches.max(initial=-1)) + 1)
    counts, means, squares, known = (np.zeros(shape) for _ in range(4))
    error = trials[f"{of}_error"].to_numpy("float64") / unit
    np.add.at(counts, (codes, launches), 1)
    np.add.at(known, (codes, launches), ~np.isnan(error))
    np.add.at(means, (codes, launches), trials[of].to_numpy("float64") / unit)
    np.add.at(squares, (codes, launches), np.nan_to_num(error) ** 2)
    there = counts > 0
    means = np.divide(means, counts, out=np.full(shape, np.nan), where=there)
    # A window that drifts has no error of its own: its point's other launches say how much its
    # windows vary.
    of_launch = np.divide(
        squares, known * np.maximum(counts, 1), out=np.zeros(shape), where=known > 0
    )
    said = (known > 0).sum(axis=1)
    within = np.divide(
        of_launch.sum(axis=1), said, out=np.full(len(points), np.nan), where=said > 0
    )
    return Launches(points, means, within)


def spread_of(trials: pd.DataFrame, of: str) -> pd.DataFrame:
    """Describe by environment what `launch_sigma` returns.

    Args:
        trials: of all environments, as `launches_of` takes them.
        of: a measured column.
    """
    import pandas as pd

    rows = {}
    for env_id, there in trials.groupby("env_id", dropna=False):
        found = launches_of(there, of, relative=True)
        several = found.counts > 1
        launched = there.groupby(list(POINT), dropna=False)["launch"].nunique() > 1
        if launched.any():
            degrees = (found.counts[several] - 1).sum()
            rows[env_id] = {
                "spread": (found.squares[several].sum() / degrees) ** 0.5 if degrees else np.nan,
                "degrees": degrees_of(found.there[several]),
                "launch_sigma": max(0.0, found.apart.added) ** 0.5 if found.apart else np.nan,
                "points": several.sum(),
                "left_out": launched.sum() - several.sum(),
            }
    columns = ["spread", "degrees", "launch_sigma", "points", "left_out"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("env_id")


def degrees_of(there: NDArray[np.bool_]) -> int:
    """Degrees of freedom of each set of points that share launches, directly or through others.

    It is the number of launches minus one.

    Args:
        there: (points, launches), True where a launch measured a point.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    points, launches = there[:, there.any(axis=0)].nonzero()
    measured = len(np.unique(launches))
    size = len(there) + measured
    links = coo_array((np.ones(len(points)), (points, launches + len(there))), shape=(size, size))
    sets: int = connected_components(links, directed=False)[0]
    return measured - sets
