"""Limits of an answer: the variance between launches, and the variance within windows."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.launches import ASKED
from dtsweep.inference.spread import of_environment
from dtsweep.inference.windows import Variances

if TYPE_CHECKING:
    from dtsweep.analysis.study import Study


def variances_of(study: Study, points: Collection[str], *, of: str) -> Variances | None:
    """Give the variances of some points' launches, and the time that launches take.

    Args:
        study: of the trials.
        points: `point_id` of the points that compete.
        of: what they compete in.

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
