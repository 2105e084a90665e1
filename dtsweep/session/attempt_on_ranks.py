"""One attempt on the ranks of a session: handed out, waited for, and its result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.session.deadlines import AttemptProgress, hang_at
from dtsweep.session.diagnosis import UNBROKEN, Diagnosis, ended_as
from dtsweep.session.session import Session
from dtsweep.session.shards import ranks_of_shards
from dtsweep.sweep.task import Task


async def verdict_on_attempt(
    session: Session, task: Task, shards: Sequence[Any]
) -> Diagnosis | None:
    """Hand out a task and wait for all ranks; a verdict where not all of them answered."""
    session.hand_out(task, shards)
    progress = AttemptProgress(began=time.monotonic())
    while len(session.results) < task.point.workers:
        now = time.monotonic()
        progress = progress.at(
            now,
            warm_ups=session.warm_ups(),
            failures=[r.status for r in session.results.values() if r.status not in UNBROKEN],
        )
        if not session.state.has_trainer:
            # A rank that said why explains more than a process that ended after it.
            if set(progress.failures) - {"collateral"}:
                return None
            return await session.verdict()
        hang = hang_at(task, progress)
        if now > progress.give_up_at:
            return None
        if now > hang:
            return await session.why_silent(task)
        await session.wait(min(progress.give_up_at, hang) - now)
    return None


def result_of(
    session: Session, task: Task, verdict: Diagnosis | None, *, trial_s: float
) -> AttemptResult:
    """Result of an attempt that has ended.

    Args:
        session: whose ranks ran it.
        task: the attempt.
        verdict: on ranks that did not answer; None where all did.
        trial_s: seconds that it took.
    """
    results = dict(session.results)
    status, reason = ended_as(verdict, results, workers=len(session.members))
    at_fault = (
        session.members[rank] for rank, result in sorted(results.items()) if result.status == status
    )
    # Where no rank said so itself: a process that has died.
    if verdict is None or verdict.rank is None:
        died = session.members[0]
    else:
        died = verdict.rank
    return AttemptResult(
        status=status,
        reason=reason,
        facts=session.member_facts(),
        results=results,
        session=session.name,
        session_workers=session.workers,
        explained_by=next(at_fault, died),
        trial_s=trial_s,
        shard_nodes=ranks_of_shards(task.point),
    )
