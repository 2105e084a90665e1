"""Canaries of a run, and their drift."""

from __future__ import annotations

import math

import numpy as np

from dtsweep.measure.drift import Level, change, level_of, median_of
from dtsweep.plan.trial import Row


class CanaryLevels:
    """Levels of the canaries of a run; those measured alone and next to other trials apart."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, bool], list[Level]] = {}

    def add(self, row: Row) -> bool:
        """Add a canary that ended `ok`.

        Returns:
            True if it differs from the median of the earlier ones that ran as it did, alone or not.
        """
        error_s, half_width = (
            math.nan if row[name] is None else row[name]
            for name in ("step_mean_s_error", "half_width")
        )
        level = level_of(row["step_mean_s"], error_s=error_s, half_width=half_width)
        is_alone = not row["concurrent_trials"]
        earlier = self._levels.setdefault((row["point_id"], is_alone), [])
        drifts = bool(earlier) and change(level, median_of(Level(*np.transpose(earlier)))).is_drift
        earlier.append(level)
        return bool(drifts)
