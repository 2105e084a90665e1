"""Canaries: a fixed point of a session's largest world, measured at both ends and between.

They show drift of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtsweep.plan.trial import Trial
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import MODE_FIELDS, OF_THE_USER
from dtsweep.sweep.point import DEFAULTS, World, identity
from dtsweep.sweep.settings import Sweep

CANARY_TRIALS, CANARY_CONTENDERS = 2, 4
"""Least trials of a session with canaries: in general, and in later rounds of a question.

Around a single one they would double its cost. A round compares its points inside one session.
Batches of a search are as small as later rounds.
"""


def has_canaries(sweep: Sweep, trials: Sequence[Trial]) -> bool:
    """True if a session with these trials measures canaries, where its world has one."""
    if not sweep.measure.canary:
        return False
    is_later_round = sweep.question is not None and trials[0].repeat > 1
    if is_later_round or sweep.search is not None:
        return len(trials) >= CANARY_CONTENDERS
    return len(trials) >= CANARY_TRIALS


def choose_canaries(trials: Sequence[Trial]) -> Mapping[World, Trial]:
    """Choose the canary of each world.

    It is the trial with the middle micro-batch as plain `ddp`, uncompressed and without a power
    limit, so never larger than what the world runs itself. In a world in which every trial divides
    its state among the workers it keeps its own mode, because `ddp` might not fit.

    Args:
        trials: all of the plan, done ones too, so that a resumed run has the same canaries.
    """
    canaries = {}
    common = ("compression", *COMPRESSION_FIELDS)
    usual = {name: DEFAULTS[name] for name in common}
    plain: dict[str, Any] = {"sync": "ddp", **{name: DEFAULTS[name] for name in MODE_FIELDS}}
    inside: dict[World, list[Trial]] = {}
    for trial in trials:
        inside.setdefault(trial.point.world, []).append(trial)
    for world, world_trials in inside.items():
        undivided = [t for t in world_trials if not t.point.mode.shards_optimizer]
        among = undivided or world_trials
        among.sort(key=lambda trial: (trial.point.micro_batch, identity(trial.point)))
        middle = among[len(among) // 2]
        settings = dict(usual)
        if undivided and middle.point.sync not in OF_THE_USER:
            settings |= plain
        point = replace(middle.point, accumulation=1, **settings)
        canaries[world] = replace(middle, point=point, role="canary", why="canary")
    return canaries
