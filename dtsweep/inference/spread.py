"""Launches of points in one environment, the variance between them, and its degrees of freedom."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.inference.variance import (
    PRIOR_SIGMA,
    PRIOR_SIGMA_IN_TURN,
    Numbers,
    VarianceComponents,
    pool_paired,
    pool_unpaired,
)

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
    within_variance: Numbers
    """(points,) variance of a mean within its launch; nan where no window gives it."""
    prior_sigma: float | None = None
    """Standard deviation between launches that is expected, as `PRIOR_SIGMA`; None if unknown."""
    is_in_turn: bool = False
    """True if a column is a session that measured its points in turn."""
    in_turn: Launches | None = None
    """Same points, by the sessions that measured some in turn; None without such sessions."""
    whole: Launches | None = None
    """Same points, by the whole windows that each of them has; None without turns."""

    @cached_property
    def is_measured(self) -> NDArray[np.bool_]:
        """(points, launches), True where a launch measured a point."""
        return ~np.isnan(self.means)

    @property
    def windows_variance(self) -> Numbers:
        """`within_variance`; 0 where no window at all knows it, as in a table of others' results.

        The between-launch variance, which has a prior, then stands for both.
        """
        if self.prior_sigma is not None and np.isnan(self.within_variance).all():
            return np.zeros_like(self.within_variance)
        return self.within_variance

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """(points,) launches that measured a point."""
        counts: NDArray[np.intp] = self.is_measured.sum(axis=1)
        return counts

    @cached_property
    def point_means(self) -> Numbers:
        """(points,) mean over a point's launches."""
        point_means: Numbers = np.nansum(self.means, axis=1) / self.counts
        return point_means

    @cached_property
    def constants(self) -> Numbers:
        """(points,) value that two or more launches of a point have; nan if they differ."""
        spread = np.nanmax(self.means, axis=1) - np.nanmin(self.means, axis=1)
        return np.where((spread == 0) & (self.counts > 1), self.point_means, np.nan)

    @cached_property
    def residuals(self) -> Numbers:
        """(points, launches) distance from that mean; 0 where a launch did not measure a point."""
        return np.where(self.is_measured, self.means - self.point_means[:, None], 0.0)

    @cached_property
    def residual_ss(self) -> Numbers:
        """(points,) residual sum of squares."""
        residual_ss: Numbers = (self.residuals**2).sum(axis=1)
        return residual_ss

    @property
    def pool(self) -> VarianceComponents | None:
        """Between-launch variance: paired, where launches are shared, else unpaired."""
        return self.paired_pool or self.unpaired_pool

    @cached_property
    def prior_pool(self) -> VarianceComponents | None:
        """Variance expected before anything was repeated; None of whole windows, which drift."""
        if not self.is_in_turn or self.prior_sigma is None or np.isnan(self.within_variance).all():
            return None
        none, unknown = np.zeros(len(self.means)), np.full(len(self.means), np.nan)
        within = float(np.nanmean(self.within_variance))
        return VarianceComponents(0.0, 0.0, within, 0, unknown, none, none).with_prior(
            self.prior_sigma
        )

    @cached_property
    def unpaired_pool(self) -> VarianceComponents | None:
        """Between-launch variance, pooled over points with several launches (unpaired).

        None if no such point has a within-launch variance.
        """
        is_pooled = (self.counts > 1) & ~np.isnan(self.windows_variance)
        if not is_pooled.any():
            return None
        pool = pool_unpaired(
            self.residual_ss[is_pooled],
            (self.counts[is_pooled] - 1).astype("float64"),
            self.windows_variance[is_pooled],
            launch_degrees=_degrees_of(self.is_measured[is_pooled]),
        )
        return pool.of_all(is_pooled)

    @cached_property
    def paired_pool(self) -> VarianceComponents | None:
        """Between-launch variance after removing each launch's own effect (paired).

        None if no two points share two launches.
        """
        is_pooled = self.is_measured & ~np.isnan(self.windows_variance)[:, None]
        before = -1
        while before != is_pooled.sum():
            before = is_pooled.sum()
            is_pooled = is_pooled & (is_pooled.sum(axis=0) > 1)
            is_pooled = is_pooled & (is_pooled.sum(axis=1, keepdims=True) > 1)
        rows = np.asarray(is_pooled.any(axis=1))
        columns = is_pooled.any(axis=0)
        if not rows.any():
            return None
        is_pooled = is_pooled[rows][:, columns]
        # One degree less for each point's mean, and for each launch but one of its set.
        launch_degrees = int(is_pooled.sum()) - len(is_pooled) - _degrees_of(is_pooled)
        means = np.where(is_pooled, self.means[rows][:, columns], np.nan)
        pool = pool_paired(means, self.windows_variance[rows], launch_degrees=launch_degrees)
        return pool.of_all(rows)


def of_environment(trials: pd.DataFrame, env_id: Any) -> pd.DataFrame:
    """Select the trials of an environment; null is one, too."""
    import pandas as pd

    is_inside = trials["env_id"] == env_id
    if pd.isna(env_id):
        is_inside = trials["env_id"].isna()
    # Tables are wide: a copy of all rows takes longer than all that is asked of them.
    if is_inside.all():
        return trials
    selected: pd.DataFrame = trials[is_inside]
    return selected


def launches_of(
    trials: pd.DataFrame, of: str, *, relative: bool = False, has_prior: bool = False
) -> Launches:
    """Arrange a measured column by point and launch.

    `Launches` pools the between-launch variance when it is first needed.

    Args:
        trials: of one environment, one row per launch of a point: `POINT`, `launch`, `of` and
            `<of>_error`, its standard error within the launch; `in_turn` as `with_turns` adds it.
            Rows where `of` is null are left out.
        of: a measured column.
        relative: as shares of the point's mean; else as it is.
        has_prior: of logarithms, whose variance between launches is known in general.
    """
    trials = trials.dropna(subset=[of])
    groups = trials.groupby(list(POINT), dropna=False, sort=False)
    codes = groups.ngroup().to_numpy()
    points = trials.loc[~groups.ngroup().duplicated(), list(POINT)].reset_index(drop=True)
    # Where all are null pandas makes numbers of them, which match no text.
    points = points.astype({"point_id": object, "env_id": object})
    unit = groups[of].transform("mean") if relative else 1.0
    values = trials.assign(code=codes, value=trials[of] / unit, error=trials[f"{of}_error"] / unit)
    launches = _arranged(points, values, prior_sigma=PRIOR_SIGMA if has_prior else None)
    if "in_turn" not in trials or trials["in_turn"].isna().all():
        return launches
    in_turn = values[values["in_turn"].notna()]
    in_turn = in_turn.assign(launch=in_turn["in_turn"])
    by_group = _arranged(points, in_turn, prior_sigma=PRIOR_SIGMA_IN_TURN)
    windows = values[values["in_turn"].isna()]
    whole = None
    if windows["code"].nunique() == len(points):
        whole = _arranged(points, windows, prior_sigma=launches.prior_sigma)
    return replace(launches, in_turn=replace(by_group, is_in_turn=True), whole=whole)


def _arranged(points: pd.DataFrame, values: pd.DataFrame, *, prior_sigma: float | None) -> Launches:
    """Arrange `value` and `error` by `code`, the number of the point, and by `launch`."""
    codes, launches = values["code"].to_numpy(), values["launch"].factorize()[0]
    shape = (len(points), int(launches.max(initial=-1)) + 1)
    counts, means, squared_errors, error_counts = (np.zeros(shape) for _ in range(4))
    error = values["error"].to_numpy("float64")
    np.add.at(counts, (codes, launches), 1)
    np.add.at(error_counts, (codes, launches), ~np.isnan(error))
    np.add.at(means, (codes, launches), values["value"].to_numpy("float64"))
    np.add.at(squared_errors, (codes, launches), np.nan_to_num(error) ** 2)
    means = np.divide(means, counts, out=np.full(shape, np.nan), where=counts > 0)
    # A window that drifts has no error of its own: its point's other launches say how much its
    # windows vary.
    launch_variance = np.divide(
        squared_errors,
        error_counts * np.maximum(counts, 1),
        out=np.zeros(shape),
        where=error_counts > 0,
    )
    with_error = (error_counts > 0).sum(axis=1)
    within_variance = np.divide(
        launch_variance.sum(axis=1),
        with_error,
        out=np.full(len(points), np.nan),
        where=with_error > 0,
    )
    return Launches(points, means, within_variance, prior_sigma)


def spread_of(trials: pd.DataFrame, of: str) -> pd.DataFrame:
    """Summarize the relative standard deviation between launches, by environment.

    Args:
        trials: of all environments, as `launches_of` takes them.
        of: a measured column.
    """
    import pandas as pd

    rows = {}
    for env_id, environment in trials.groupby("env_id", dropna=False):
        launches = launches_of(environment, of, relative=True)
        several = launches.counts > 1
        launched = environment.groupby(list(POINT), dropna=False)["launch"].nunique() > 1
        if launched.any():
            degrees = (launches.counts[several] - 1).sum()
            spread = launch_sigma = np.nan
            if degrees:
                spread = (launches.residual_ss[several].sum() / degrees) ** 0.5
            if pool := launches.unpaired_pool:
                launch_sigma = max(0.0, pool.between_variance) ** 0.5
            rows[env_id] = {
                "spread": spread,
                "degrees": _degrees_of(launches.is_measured[several]),
                "launch_sigma": launch_sigma,
                "points": several.sum(),
                "left_out": launched.sum() - several.sum(),
            }
    columns = ["spread", "degrees", "launch_sigma", "points", "left_out"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("env_id")


def _degrees_of(is_measured: NDArray[np.bool_]) -> int:
    """Degrees of freedom of launch means, by the number of launches.

    It is the number of launches minus one, summed over the sets of points that share launches,
    directly or through other points.

    Args:
        is_measured: (points, launches), True where a launch measured a point.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    points, launches = is_measured[:, is_measured.any(axis=0)].nonzero()
    launch_count = len(np.unique(launches))
    size = len(is_measured) + launch_count
    ends = (points, launches + len(is_measured))
    links = coo_array((np.ones(len(points)), ends), shape=(size, size))
    sets: int = connected_components(links, directed=False)[0]
    return launch_count - sets
