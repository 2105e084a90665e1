"""The points of an attempt: one, or several that are measured in turn, each with a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.rows import explaining_failure
from dtsweep.plan.trial import Trial
from dtsweep.results.statuses import RETRIED
from dtsweep.sweep.task import Task

_ALONE = "it could not be measured in turn: it lacks memory, has other ranks, or is compiled"


def trials_of_attempt(trial: Trial, task: Task) -> list[tuple[Trial, Task]]:
    """The trial with its task, and those that are measured in turn with it."""
    return list(zip((trial, *trial.in_turn), (task, *task.in_turn), strict=True))


def results_of_points(result: AttemptResult, tasks: Sequence[Task]) -> list[AttemptResult]:
    """Results of points that were measured in turn, each with its share of the time.

    Of one point it is the result itself. Where the attempt failed as a whole, no point may be to
    blame: each is then measured again alone, as one is that did not fit into memory.
    """
    if len(tasks) == 1:
        return [result]
    trial_s = result.trial_s and result.trial_s / len(tasks)
    shared = replace(result, trial_s=trial_s, turn_group=tasks[0].attempt_id)
    # A rank that did not answer, or a head that is gone, spoils the turns of all of them.
    is_whole = len(result.results) == tasks[0].point.workers
    is_whole = is_whole and all(one.in_turn for one in result.results.values())
    if not is_whole or result.status in RETRIED:
        if result.status not in RETRIED and result.hopeless_for is None:
            words = f"one of {len(tasks)} points that were measured in turn failed"
            shared = replace(shared, status="collateral", reason=f"{words}: {result.reason}")
        return [shared, *(_without_start(shared) for _ in tasks[1:])]
    results = [shared]
    for number, task in enumerate(tasks[1:]):
        ranks = {rank: one.in_turn[number] for rank, one in result.results.items()}
        measured = {rank: one for rank, one in ranks.items() if one is not None}
        status: str = "collateral"
        reason: str | None = _ALONE
        if measured:
            status, reason = explaining_failure(measured)
        facts = {rank: result.facts[rank] for rank in range(task.point.workers)}
        own = replace(shared, status=status, reason=reason, facts=facts, results=measured)
        results.append(_without_start(own))
    return results


def _without_start(result: AttemptResult) -> AttemptResult:
    """Leave out what is stored once of several points: the session's start, its logs and notes."""
    return replace(result, startup_s=None, nodes_wait_s=None, notes=(), logs={})
