"""Until when the ranks of an attempt, and their slot, are waited for: pure functions.

Time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dtsweep.measure.cycles import LEAST_CYCLES
from dtsweep.measure.stopping import AFTER, LEAST_STEPS, WINDOWS
from dtsweep.serving.requests import longest_window_s
from dtsweep.sweep.task import Task

_OTHERS_REPORT_S = 2.0
"""Once a rank has failed, the others have this long to say how they fare."""

_DEATH_SHOWS_S = 15.0
"""A rank that lost its peer waits this long for Ray to say which process is gone."""

_LEAST_SLACK_S = 60.0
"""Least time limit of ranks, in addition to the window and the work after it."""

_ON_TRAINING = 0.25
"""Time for evaluations and checkpoints of a training to a target, as a share of its own."""

CLOSE_S = 30.0
"""Time limit for ranks to end, and for their trainer after they were killed."""

IMPORT_S = 600.0
"""Processes that run, of ranks and of shards, have this long for their imports."""

_ASKED_NODES_S = 120.0
"""Time limit for questions to nodes after a failure: live nodes, stacks, logs, each 30 s."""

STOP_S = 10.0
"""Time limit for sessions to end in order when the run is interrupted."""


@dataclass(frozen=True, kw_only=True)
class AttemptProgress:
    """Progress of an attempt's ranks; times by the monotonic clock, in seconds."""

    began: float
    """Time at which the task was handed out."""

    windows: int = 0
    """Number of windows that all ranks have begun; after a compilation another one follows."""

    warm_at: float | None = None
    """Time at which the last rank began the last of them."""

    slowest_step_s: float = 0.0
    """The slowest warm-up step of any rank, before any of them."""

    failures: Collection[str] = ()
    """Statuses of the ranks that failed."""

    give_up_at: float = math.inf
    """End of the wait for other ranks after one has failed; infinite if none has."""

    def at(
        self, now: float, *, warm_ups: Sequence[float], failures: Collection[str]
    ) -> AttemptProgress:
        """Progress with the ranks' latest messages.

        The first failure sets the grace of the other ranks, once.

        Args:
            now: by the monotonic clock.
            warm_ups: the slowest step of any rank, in seconds, of each warm-up that all ranks have
                ended.
            failures: statuses of the ranks that have failed so far.
        """
        seen = replace(self, failures=failures)
        if len(warm_ups) > seen.windows:
            seen = replace(seen, windows=len(warm_ups), warm_at=now, slowest_step_s=max(warm_ups))
        if failures and not self.failures:
            seen = replace(seen, give_up_at=now + grace_s(failures))
        return seen


def hang_at(task: Task, progress: AttemptProgress) -> float:
    """Time at which silent ranks count as hanging, by the monotonic clock.

    Until all are warm they have `max_warmup_seconds`; then the window, what follows it, and slack.
    Once a rank has failed, those that wait for it don't hang: infinite.
    """
    if progress.failures:
        return math.inf
    if progress.warm_at is None:
        return progress.began + _before_window_s(task)
    # A window has a whole period, and another until all have seen that it ends.
    # Turns have the least cycles, and the one in which the time ends.
    # The least steps, which `max_seconds` waits for, are within the slack of ten steps.
    steps = 2 * task.point.period
    if task.in_turn:
        periods = [max(LEAST_STEPS, one.point.period) for one in (task, *task.in_turn)]
        steps = (LEAST_CYCLES + 1) * sum(periods)
    periods_s = steps * progress.slowest_step_s
    longest_s = task.measure.max_seconds
    if task.point.rate is not None:
        longest_s = longest_window_s(task.measure, rate=task.point.rate)
    window_s = task.points * (1 + AFTER) * longest_s
    return (
        progress.warm_at + window_s + max(_LEAST_SLACK_S, 10 * progress.slowest_step_s) + periods_s
    )


def _before_window_s(task: Task) -> float:
    """Seconds until all ranks are warm, at most, with a training to a target and what it costs."""
    return task.points * task.measure.max_warmup_seconds + (1 + _ON_TRAINING) * task.train_s


def collective_timeout_s(task: Task) -> float:
    """Time limit of a collective of a task, in seconds: longer than the slot waits for any rank.

    Only the slot can say who hangs: a collective that gives up ends the ranks that waited.
    """
    longest = _before_window_s(task)
    last = AttemptProgress(began=0.0, warm_at=longest, slowest_step_s=longest)
    return hang_at(task, last) + _LEAST_SLACK_S


def attempt_bound_s(task: Task, *, node_timeout_s: float) -> float:
    """Time limit of a slot for an attempt, in seconds, with all that can come before and after it.

    A slot that takes longer waits for something that it has no deadline for.

    Args:
        task: of the attempt.
        node_timeout_s: how long nodes may take to come.
    """
    # The session that was begun for it may turn out not to fit.
    starts_s = 2 * (node_timeout_s + IMPORT_S + 2 * CLOSE_S)
    shards_s = 0.0
    if task.point.servers:
        shards_s = IMPORT_S
    longest = task.points * task.measure.max_warmup_seconds
    window_s = hang_at(task, AttemptProgress(began=0.0, warm_at=0.0, slowest_step_s=longest))
    after_s = _DEATH_SHOWS_S + _ASKED_NODES_S + CLOSE_S
    return starts_s + shards_s + _before_window_s(task) + WINDOWS * window_s + after_s


def grace_s(failures: Collection[str]) -> float:
    """Time for the other ranks to answer after the first failures, in seconds."""
    # Losing a peer is no fault of a rank's: Ray will say in a moment who died.
    if set(failures) == {"collateral"}:
        return _DEATH_SHOWS_S
    return _OTHERS_REPORT_S
