"""Canaries: the fixed point of a session's largest world that it measures at both ends, to see the machine change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtsweep.plan.trial import Trial
from dtsweep.sweep.modes import MODE_FIELDS
from dtsweep.sweep.point import World, identity

CANARY_TRIALS = 2
"""Trials of a session from which on it has canaries: around a single one they would cost twice what they watch."""


def canaries(trials: Sequence[Trial]) -> Mapping[World, Trial]:
    """Choose the canary of each world.

    The trial with the middle micro-batch as plain `ddp`: never larger than what the world runs itself.

    Args:
        trials: all of the plan, done ones too, so that a resumed run has the same canaries.
    """
    found = {}
    plain: dict[str, Any] = {"sync": "ddp", **dict.fromkeys(MODE_FIELDS), "accumulation": 1}
    inside: dict[World, list[Trial]] = {}
    for trial in trials:
        inside.setdefault(trial.point.world, []).append(trial)
    for world, those in inside.items():
        those.sort(key=lambda trial: (trial.point.micro_batch, identity(trial.point)))
        middle = those[len(those) // 2]
        found[world] = replace(middle, point=replace(middle.point, **plain), role="canary", why="canary")
    return found
