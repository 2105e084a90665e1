"""Race of trainings to a target: how long one may take that can still be the best."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean

from dtsweep.plan.trial import Rows
from dtsweep.sweep.goal import Goal

_FACTOR = 2.0
"""Time of a training that can't win any more, as a multiple of the fastest point's mean.

Seeds of a point differ by less.
"""


class Race:
    """Trainings that have reached the target, and the limit of time that follows from them."""

    def __init__(self, goal: Goal | None, rows: Rows = ()) -> None:
        """Begin with the trainings that are stored.

        No training has a limit where more counts than the time. One race is of all models.
        """
        self._goal = goal or Goal()
        self._times = defaultdict[str, list[float]](list)
        for row in rows:
            if row["status"] == "ok" and row.get("is_censored") is False:
                self.note(row["point_id"], row["semantics"], row["time_to_loss_s"])

    def note(self, point_id: str, semantics: str, time_s: float) -> None:
        """Note a training of a point that has reached the target, if it may be the answer."""
        if semantics in ("exact", *self._goal.allow):
            self._times[point_id].append(time_s)

    @property
    def limit_s(self) -> float:
        """Seconds after which a training can't be the best any more."""
        goal = self._goal
        counts_more = goal.minimize != "time_to_loss_s" or goal.where or goal.least_rate
        if counts_more or not self._times:
            return math.inf
        return _FACTOR * min(map(fmean, self._times.values()))
