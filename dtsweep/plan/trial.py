"""A trial of a plan, and which trials may share a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtsweep.sweep.point import Point


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A point and a repeat, and what the plan says of it."""

    point: Point
    repeat: int
    trial_id: str
    why: str
    """Reason to run it; or its outcome."""

    role: str = "trial"
    """`trial` or `canary`."""

    @property
    def is_canary(self) -> bool:
        """True if it watches the machine and answers no question."""
        return self.role == "canary"


def groups_of(trials: Sequence[Trial], *, fresh: bool) -> list[list[Trial]]:
    """Split a plan's trials into those that share a session, in its order."""
    groups: dict[Any, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(
            trial.trial_id if fresh else (trial.repeat, trial.point.world), []
        ).append(trial)
    return list(groups.values())


def group_launches(groups: Sequence[Sequence[Trial]]) -> list[list[Sequence[Trial]]]:
    """Sort groups of trials by the launch that can run them.

    Where sessions nest, worlds of one launch differ in size alone.
    """
    launches: dict[Any, list[Sequence[Trial]]] = {}
    for group in groups:
        first = group[0]
        world = group[0].point.world
        launches.setdefault((first.repeat, world.placement, world.environment), []).append(group)
    return list(launches.values())
