"""Noise behind an answer: drift, windows that ended too early, and variances of launches."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtsweep.analysis.launches import ASKED
from dtsweep.inference.spread import of_environment
from dtsweep.inference.windows import Variances
from dtsweep.measure.stopping import LIMITS

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.study import Study


class Noise(NamedTuple):
    """Noise that a quieter machine or longer windows would lower."""

    drift: float
    """Drift that canaries show, as a share; 0 where they show none."""
    imprecise: int
    """Trials whose window reached a limit before the precision that was asked for."""
    trials: int
    """All trials, those included."""
    limit: str
    """Setting of `Measure` that ended most of these windows; empty without any."""

    @property
    def is_mostly_imprecise(self) -> bool:
        """True if more than half of the trials are imprecise."""
        return 2 * self.imprecise > self.trials


def noise_of(trials: pd.DataFrame, *, drift: float | None) -> Noise:
    """Count the trials whose windows were too short."""
    is_flagged = trials["flags"].map(lambda flags: flags is not None and "imprecise" in flags)
    ends = trials.loc[is_flagged.astype("bool"), "stop_reason"]
    limits = ends[ends.isin(LIMITS)]
    limit = ""
    if len(limits):
        limit = str(limits.value_counts().index[0])
    return Noise(drift=drift or 0.0, imprecise=len(limits), trials=len(trials), limit=limit)


def variances_of(study: Study, points: Collection[str], *, of: str) -> Variances | None:
    """Give the variances of some points' launches, and the time that launches take.

    Returns:
        Those of the environment of the newest launch; None if the launches don't show them.
    """
    trials = study.trials[study.trials["point_id"].isin(points)]
    if trials.empty or of not in ASKED:
        return None
    newest = of_environment(trials, trials["env_id"].iloc[-1])
    launches = study.launches(newest["env_id"].iloc[-1], of)
    pool = launches.pool
    relative = newest[f"{of}_error"] / newest[of]
    window_s = newest["window_s"].astype("float64")
    launch_s = (newest["trial_s"] - window_s + newest["overhead_s"].fillna(0.0)).astype("float64")
    sessions = study.frame[study.frame["session"].isin(newest["session"])]
    starts_s = sessions.groupby("session")["startup_s"].max().sum() / len(newest)
    values = [relative.pow(2).median(), window_s.median(), launch_s.median() + starts_s]
    if pool is None or not np.isfinite(values).all() or min(values) <= 0:
        return None
    within, window, launch = map(float, values)
    return Variances(
        between=max(0.0, pool.between_variance), within=within, window_s=window, launch_s=launch
    )
