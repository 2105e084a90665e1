"""What Ray says of how a trainer ended: pure functions of the error of its `fit()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.exceptions import RayActorError, RayError


def causes_of(error: BaseException | None) -> Mapping[int, BaseException]:
    """What ended ranks of the session, by rank: what one raised, its process's death, or that its node is taken back.

    Empty where Ray names no rank.
    """
    if error is not None and (notice := _notice(error)) is not None:
        return dict.fromkeys(notice.preempted_ranks, error)
    failures: Mapping[int, BaseException] = getattr(error, "worker_failures", {})
    # Where Train could not ask a rank, it wraps the reason.
    return {rank: getattr(failure, "health_check_failure", failure) for rank, failure in failures.items()}


def is_preempted(error: BaseException | None) -> bool:
    """Whether a node was taken back by its owner, with notice or without."""
    causes = causes_of(error).values()
    return _notice(error) is not None or any(isinstance(c, RayActorError) and c.preempted for c in causes)


def has_lost_process(error: BaseException | None) -> bool:
    """Whether ranks were ended from outside, instead of raising something."""
    return is_preempted(error) or any(isinstance(cause, RayError) for cause in causes_of(error).values())


def _notice(error: BaseException | None) -> Any:
    """What an owner said who takes nodes back; older Ray has no such error."""
    return getattr(error, "preemption_info", None)
