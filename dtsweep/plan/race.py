"""Race of trainings to a target: how long one may take that can still be the best."""

from __future__ import annotations

import math

from dtsweep.plan.trial import Rows
from dtsweep.sweep.goal import Goal
from dtsweep.sweep.point import Point

_FACTOR = 2.0
"""Cost of a training, as a multiple of the lowest one so far, from which on it can't win.

Seeds of a point differ by less: a training that takes longer than twice another one is not the best
configuration's.
"""


class Race:
    """Lowest cost of a training so far, and the limit of time that follows from it."""

    def __init__(self, goal: Goal | None, rows: Rows = ()) -> None:
        """Begin with the trainings that are stored.

        Args:
            goal: of the sweep; only times, and times times workers, limit others.
            rows: of `trials`.
        """
        objective = goal.minimize if goal is not None else None
        self._is_per_worker = objective == "worker_s_to_loss"
        self._limits = objective in ("time_to_loss_s", "worker_s_to_loss")
        self._lowest = math.inf
        for row in rows:
            if row["status"] == "ok" and row.get("is_censored") is False:
                self._note(row["workers"], row["time_to_loss_s"])

    def note(self, point: Point, time_s: float) -> None:
        """Note a training that has reached the target."""
        self._note(point.workers, time_s)

    def _note(self, workers: int, time_s: float) -> None:
        self._lowest = min(self._lowest, time_s * self._cost_per_s(workers))

    def limit_s(self, point: Point) -> float:
        """Seconds after which a training of a point can't be the best any more."""
        if not self._limits:
            return math.inf
        return _FACTOR * self._lowest / self._cost_per_s(point.workers)

    def _cost_per_s(self, workers: int) -> int:
        return workers if self._is_per_worker else 1
