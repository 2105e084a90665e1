"""Until when the ranks of an attempt are waited for: pure functions of what they have said; time is an argument."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from dtsweep.measure.stopping import AFTER
from dtsweep.sweep.task import Task

OTHERS_REPORT_S = 2.0
"""Once a rank has failed, the others have this long to say how they fare."""

DEATH_SHOWS_S = 15.0
"""A rank that lost its peer waits this long for Ray to say which process is gone."""

LEAST_SLACK_S = 60.0
"""What ranks may take beside the window and what follows it, at least."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the ranks of an attempt are; times by the monotonic clock, in seconds."""

    began: float
    """When the task was handed out."""

    warm_at: float | None = None
    """When the last rank began its window."""

    slowest_step_s: float = 0.0
    """The slowest warm-up step of any rank."""

    failed_at: float | None = None
    """When the first rank failed."""

    failures: Collection[str] = ()
    """Statuses of the ranks that failed."""


def hang_at(task: Task, progress: Progress) -> float:
    """When ranks that have not answered hang, by the monotonic clock.

    Until all are warm they have `max_warmup_seconds`; then the window, what follows it, and slack.
    """
    if progress.warm_at is None:
        return progress.began + task.measure.max_warmup_seconds
    # A window has a whole period, and another until all have seen that it ends; a profile has one too.
    periods_s = (2 + task.is_profiled) * task.point.period * progress.slowest_step_s
    window_s = (1 + AFTER) * task.measure.max_seconds
    return progress.warm_at + window_s + max(LEAST_SLACK_S, 10 * progress.slowest_step_s) + periods_s


def give_up_at(progress: Progress) -> float:
    """When the others need not answer any more after a rank has failed; infinite while none has."""
    if progress.failed_at is None:
        return math.inf
    # Losing a peer is no fault of a rank's: Ray will say in a moment who died.
    only_lost_peers = set(progress.failures) == {"collateral"}
    return progress.failed_at + (DEATH_SHOWS_S if only_lost_peers else OTHERS_REPORT_S)
