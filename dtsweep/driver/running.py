"""An attempt under way: how long it may take, and its result once it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import ray

from dtsweep.errors import error_line
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.plan.trial import Trial
from dtsweep.session.deadlines import attempt_bound_s
from dtsweep.session.session_settings import Settings
from dtsweep.sweep.task import Task

_COLLECT_S = 60.0
"""Time limit for a slot to hand over a result that it has."""

_NOT_BEGUN = "Ray Tune's process ended before it had begun the trial"


@dataclass(kw_only=True)
class Running:
    """An attempt under way."""

    trial: Trial
    task: Task
    slot: int
    began: float
    """By the monotonic clock, in seconds."""

    started_at: datetime
    concurrent_trials: int = 0
    """Most other attempts that ran at the same time."""

    stuck: str | None = None
    """Reason for which its slot was killed."""

    watched_s: float = 0.0
    """Time since it was handed out, in the driver's own time."""

    killed_at_s: float = 0.0
    """Value of `watched_s` when its slot, or later the process waiting for it, was killed."""


def fetched(actor: Any, ended: Running, reply: Mapping[str, Any]) -> AttemptResult:
    """Fetch an attempt's result; make one where the slot's process has ended or hangs.

    Args:
        actor: of its slot.
        ended: the attempt.
        reply: of Tune's process; empty where it could not be kept alive, which is not a fault
            of the slot's.
    """
    reason = ended.stuck or "the session's process was killed"
    if ended.stuck is None and not reply.get("slot_died"):
        collected = actor.collect.remote(ended.task.attempt_id)
        try:
            result: AttemptResult | None = ray.get(collected, timeout=_COLLECT_S)
        except ray.exceptions.GetTimeoutError:
            reason = f"the session's process did not hand over its result in {_COLLECT_S:g} s"
        except ray.exceptions.RayActorError:
            pass
        except ray.exceptions.RayTaskError as error:
            reason = f"the session's process failed: {error_line(error.cause or error)}"
        else:
            # The slot may go on with other attempts where it has never heard of this one.
            return result or AttemptResult(status="collateral", reason=_NOT_BEGUN)
    return AttemptResult(
        status="collateral", reason=reason, slot_is_spent=True, session_has_ended=True
    )


def without_head(result: AttemptResult) -> AttemptResult:
    """Result of an attempt that ended while the cluster's head did not answer.

    A measurement does not count then: what Ray does in parallel has slowed it down.
    """
    if result.status != "ok":
        return result
    return replace(
        result, status="node_lost", reason="the cluster's head did not answer when it ended"
    )


def overdue(running: Running, settings: Settings) -> str | None:
    """Say that an attempt takes longer than all deadlines of its session together, or None."""
    bound_s = attempt_bound_s(running.task, node_timeout_s=settings.node_timeout_s)
    if running.watched_s < bound_s:
        return None
    return (
        f"the session was not done with the attempt after {bound_s:.0f} s, all its deadlines "
        "together"
    )
