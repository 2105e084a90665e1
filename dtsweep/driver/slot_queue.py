"""The trials of a slot's session, with its canaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dtsweep.plan.trial import Canaries, Trial, has_canaries
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import Sweep

CANARY_EVERY_S = 600.0
"""In a session that goes on for longer, the canary is measured in between as well."""

_MOST_IN_TURN = 8
"""Most points that take turns: a cycle of more takes long, and drift within it stays."""

Queued = tuple[Trial, int]
"""A trial, and the number of its attempt."""

Group = deque[Queued]
"""Trials of a session that are left to hand out."""


@dataclass(kw_only=True)
class SlotQueue:
    """The trials of the session that a slot works off, the largest world first."""

    group: Group = field(default_factory=deque)
    canary: Trial | None = None
    """Trial that is measured at both ends of the session."""

    canary_at: float = 0.0
    """Time at which it was last handed out, by the monotonic clock."""

    live: tuple[int, World] | None = None
    """Repeat and largest world of the session that is up; None before a session is up."""

    @property
    def trials(self) -> list[Queued]:
        """Those that are not canaries."""
        return [(trial, attempt) for trial, attempt in self.group if not trial.is_canary]

    def take(self, *, now: float) -> Queued:
        """Take the next trial, or a canary that is due; `now` is by the monotonic clock, in s."""
        is_due = now - self.canary_at > CANARY_EVERY_S and not self.group[0][0].is_canary
        if self.canary is not None and is_due:
            self.group.appendleft((self.canary, 1))
        trial, attempt = self.group.popleft()
        if trial.is_canary:
            self.canary_at = now
        return trial, attempt

    def take_in_turn(self, first: Trial) -> tuple[Trial, ...]:
        """Take the trials that are measured in turn with one: in its world, or in less of it."""
        if not first.takes_turns:
            return ()
        world = first.point.world
        others: list[Trial] = []
        for trial, attempt in self.group:
            other = trial.point.world
            # Of processes on several nodes the first ones are not spread.
            is_part = other == world or (
                other.placement == "pack" and other == replace(world, workers=other.workers)
            )
            if trial.takes_turns and attempt == 1 and is_part and len(others) < _MOST_IN_TURN - 1:
                others.append(trial)
        taken = {trial.trial_id for trial in others}
        taken_out(self.group, lambda trial: trial.trial_id in taken)
        return tuple(others)

    def add_again(self, trial: Trial, *, attempt: int) -> None:
        """Line up another attempt at a trial.

        It goes behind the others of worlds as large: smaller ones can follow in its session, larger
        ones can't.
        """
        as_large = [t for t, _ in self.trials if t.point.workers >= trial.point.workers]
        self.group.insert(len(as_large), (trial, attempt))

    def watch(self, sweep: Sweep, canaries: Canaries) -> None:
        """Put the canary of the first trial, whose world is the largest, at both ends."""
        first = self.group[0][0]
        canary = None
        if has_canaries(sweep, [trial for trial, _ in self.group]):
            canary = canaries.get(first.point.world)
        self.canary = canary and replace(canary, repeat=first.repeat)
        if self.canary is not None:
            self.group.appendleft((self.canary, 1))
            self.group.append((self.canary, 1))

    def watch_the_next(self, sweep: Sweep, canaries: Canaries) -> None:
        """Have the session that follows one that ended too early watched by what fits into it."""
        waiting = self.trials
        if not waiting:
            # Another session would say nothing about the one that the canary was to watch.
            self.group.clear()
        elif self.canary is not None and waiting[0][0].point.world != self.canary.point.world:
            self.watch_again(sweep, canaries)

    def watch_again(self, sweep: Sweep, canaries: Canaries) -> None:
        """Take its canaries out, and put others at both ends."""
        self.group = deque(self.trials)
        self.canary = None
        if self.group:
            self.watch(sweep, canaries)


def largest_world(group: Iterable[Queued]) -> World:
    """The world with most workers."""
    worlds = [trial.point.world for trial, _ in group]
    return max(worlds, key=lambda world: world.workers)


def taken_out(group: Group, is_out: Callable[[Trial], bool]) -> list[Queued]:
    """Take trials out of a session, and return them; the others keep their order."""
    trials = list(group)
    group.clear()
    group.extend(item for item in trials if not is_out(item[0]))
    return [item for item in trials if is_out(item[0])]
