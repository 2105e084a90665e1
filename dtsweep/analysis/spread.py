"""How far launches of one and the same job lie apart, and how well a sweep knows that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

OWN_FROM = 8
"""Launches from which on a point's own spread is taken, whatever the sweep knows of the others."""

POOLED_FROM = 4
"""Degrees of freedom from which on the pooled spread says something about a point with one launch."""


def spread_of(trials: pd.DataFrame, of: str, *, relative: bool = True) -> pd.DataFrame:
    """Pool the variance between launches over all points of an environment that have several.

    The means are of one launch each: `spread` has the variance within a launch in it, `launch_sigma` (random
    effects) has not. Points that one launch measured share what is particular to it, so that they say once what
    it is: `degrees` counts launches less one for each set of points that share launches, not for each point.

    Args:
        trials: one row per launch of a point: `point_id`, `env_id`, `launch`, and `of` with its 95 % interval
            within the launch, `<of>_low` and `<of>_high`.
        of: a measured column.
        relative: as shares of the point's mean; else as differences to it.

    Returns:
        One row per `env_id` (the index): `spread`, the standard deviation of launch means; `degrees` of
        freedom that it is known with; `launch_sigma`, the square root of its variance less the mean variance
        within launches, not below 0. Null where no point has two launches, or no launch an interval.
    """
    trials = trials[["env_id", "point_id", "launch", of, f"{of}_low", f"{of}_high"]].dropna(subset=[of])
    points = trials.groupby(["env_id", "point_id"], dropna=False)[of]
    trials = trials.assign(mean=points.transform("mean"))[points.transform("size") > 1]
    unit = trials["mean"] if relative else 1.0
    parts = trials.assign(
        square=((trials[of] - trials["mean"]) / unit) ** 2,
        # 95 % of a normal distribution lie within 1.96 standard deviations.
        within=((trials[f"{of}_high"] - trials[f"{of}_low"]) / 2 / 1.96 / unit) ** 2,
        component=_components(trials),
    )
    groups = parts.groupby("env_id", dropna=False)
    variance = groups["square"].sum() / (groups["square"].count() - groups["point_id"].nunique())
    between = (variance - groups["within"].mean()).clip(lower=0)
    degrees = groups["launch"].nunique() - groups["component"].nunique()
    return (variance**0.5).to_frame("spread").assign(degrees=degrees, launch_sigma=between**0.5)


def pooled_is_better(degrees: Any, *, pooled: Any, launches: Any) -> Any:
    """True where the pooled spread has enough degrees of freedom.

    Depends on the number of launches only, never on measured values. With two or three launches Student's t is
    12.7 or 4.3; twice as many degrees of freedom are worth the assumption that all points spread alike, until a
    point has launches enough of its own.

    Args:
        degrees: of freedom of the point's own spread, 0 for one launch; a number or an array, as the others.
        pooled: degrees of freedom of the pooled spread; nan where there is none.
        launches: of the point.
    """
    needed = np.where(np.asarray(degrees) > 0, 2 * np.asarray(degrees), POOLED_FROM)
    return (np.asarray(launches) < OWN_FROM) & (np.asarray(pooled) >= needed)


def _components(trials: pd.DataFrame) -> NDArray[np.int32]:
    """Number the sets of points that share launches, directly or by way of others; one number per row."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    points = trials.groupby(["env_id", "point_id"], dropna=False).ngroup().to_numpy()
    launches = trials.groupby(["env_id", "launch"], dropna=False).ngroup().to_numpy() + len(trials)
    size = 2 * len(trials)
    links = coo_array((np.ones(len(trials)), (points, launches)), shape=(size, size))
    numbers: NDArray[np.int32] = connected_components(links, directed=False)[1]
    return numbers[points]
