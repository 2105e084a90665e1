"""Race of trainings to a target: how long one may take that can still be the best."""

from __future__ import annotations

import math

from dtsweep.plan.trial import Rows
from dtsweep.sweep.goal import Goal

_FACTOR = 2.0
"""Time of a training, as a multiple of the shortest one so far, from which on it can't win.

Seeds of a point differ by less: a training that takes longer than twice another one is not the best
configuration's.
"""


class Race:
    """Shortest training to the target so far, and the limit of time that follows from it."""

    def __init__(self, goal: Goal | None, rows: Rows = ()) -> None:
        """Begin with the trainings that are stored; a goal of another cost limits none."""
        self._limits = goal is not None and goal.minimize == "time_to_loss_s"
        self._shortest_s = math.inf
        for row in rows:
            if row["status"] == "ok" and row.get("is_censored") is False:
                self.note(row["time_to_loss_s"])

    def note(self, time_s: float) -> None:
        """Note a training that has reached the target."""
        self._shortest_s = min(self._shortest_s, time_s)

    @property
    def limit_s(self) -> float:
        """Seconds after which a training can't be the best any more."""
        return _FACTOR * self._shortest_s if self._limits else math.inf
