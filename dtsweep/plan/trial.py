"""A trial of a plan, and which trials may share a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtsweep.sweep.point import Point, World
from dtsweep.sweep.settings import Measure

LEAST_OF_A_PART = 4
"""Least trials of a part of a session that is split; fewer are not worth another start."""


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

    measure: Measure | None = None
    """Settings of its round; None are the sweep's. Canaries don't read it."""

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


def fits_session(world: World, live: World, *, nests: bool) -> bool:
    """True if a live session of another world can run this one.

    Args:
        world: of a trial.
        live: largest world of the session.
        nests: True if sessions also run smaller worlds.
    """
    if nests and world.workers < live.workers:
        world = replace(world, workers=live.workers)
    return world == live


def sessions_of(
    groups: Sequence[Sequence[Trial]], *, nests: bool, slots: int
) -> list[Sequence[Trial]]:
    """Trials of each session, in the order in which sessions run.

    Args:
        groups: trials of one world and repeat each.
        nests: whether one session runs the worlds of a launch, largest first; several slots take
            them in turn.
        slots: how many sessions run side by side. Large ones are split until each slot has one.
    """
    sessions = [*groups]
    if nests:
        launches = group_launches(groups)
        if slots == 1:
            # Whatever the priorities: a larger world would need another session.
            by_size = [sorted(worlds, key=lambda w: -w[0].point.workers) for worlds in launches]
            return [[trial for group in worlds for trial in group] for worlds in by_size]
        sessions = [group for worlds in launches for group in worlds]
    while sessions and len(sessions) < slots:
        largest = max(range(len(sessions)), key=lambda index: len(sessions[index]))
        trials = sessions[largest]
        if len(trials) < 2 * LEAST_OF_A_PART:
            break
        sessions[largest : largest + 1] = [trials[::2], trials[1::2]]
    return sessions
