"""A trial of a plan, which trials may share a session, and the canary of a session.

A canary is a fixed point that is measured at both ends and between, to show drift of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import AS_WRITTEN, CLOSED_LOOP, MODE_FIELDS, OF_THE_USER
from dtsweep.sweep.point import Point, World, identity
from dtsweep.sweep.point_axes import DEFAULTS
from dtsweep.sweep.settings import Measure, Sweep

Row = Mapping[str, Any]
"""Row of `trials`: an attempt as it is stored."""

Rows = Sequence[Row]

_LEAST_OF_A_PART = 4
"""Least trials of a part of a session that is split; fewer are not worth another start."""

CANARY_TRIALS, CANARY_CONTENDERS = 2, 4
"""Least trials of a session with canaries: in general, and in later rounds of a question.

Around a single one they would double its cost. A round compares its points inside one session.
Batches of a search are as small as later rounds.
"""


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
    """Settings of its round; None are the sweep's. Canaries read their longest window alone."""

    takes_turns: bool = False
    """True if it is measured in turn with others of its session that are."""

    known_peak_bytes: int | None = None
    """Highest memory of a worker in earlier launches of a point that takes turns."""

    in_turn: tuple[Trial, ...] = ()
    """Others that are handed out with it, to be measured in turn."""

    @property
    def is_canary(self) -> bool:
        """True if it watches the machine and answers no question."""
        return self.role == "canary"


def can_take_turns(point: Point) -> bool:
    """True if a model of the point can be held while others train.

    Not where other processes have a part of its state, where what a step does depends on the steps
    before it, nor where ranks don't wait for each other: turns begin and end on all ranks at once.
    """
    has_own_state = point.servers or point.draws_participants
    # Its processes load on while others train, and the next turn begins with what they loaded.
    loads_ahead = point.loader_workers is not None
    is_apart = point.sync == AS_WRITTEN or point.is_asynchronous
    # Replicas don't wait for each other, but those of equal batches end a turn together.
    is_apart = is_apart and point.sync != CLOSED_LOOP
    return not (is_apart or has_own_state or loads_ahead)


Canaries = Mapping[World, Trial]
"""Trials that sessions measure at both ends, by the largest world of a session."""


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
        world = first.point.world
        launches.setdefault((first.repeat, world.placement, world.environment), []).append(group)
    return list(launches.values())


def fits_session(world: World, live: World, *, nests: bool) -> bool:
    """True if a live session of another world can run this one."""
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
        if len(trials) < 2 * _LEAST_OF_A_PART:
            break
        sessions[largest : largest + 1] = [trials[::2], trials[1::2]]
    return sessions


def has_canaries(sweep: Sweep, trials: Sequence[Trial]) -> bool:
    """True if a session with these trials measures canaries, where its world has one."""
    if not sweep.measure.canary:
        return False
    # Points in turn see the same machine.
    watched = sum(not trial.takes_turns for trial in trials)
    is_later_round = sweep.question is not None and trials[0].repeat > 1
    if is_later_round or sweep.search is not None:
        return watched >= CANARY_CONTENDERS
    return watched >= CANARY_TRIALS


def choose_canaries(trials: Sequence[Trial]) -> Canaries:
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
        if middle.point.is_inference:
            # It may have memory for serving alone.
            settings["sync"] = CLOSED_LOOP
        point = replace(middle.point, accumulation=1, **settings)
        canaries[world] = replace(middle, point=point, role="canary", why="canary")
    return canaries
