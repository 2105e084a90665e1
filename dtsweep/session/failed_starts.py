"""Starts of a slot's sessions that failed, and the results of the attempts that wanted them."""

from __future__ import annotations

from collections import defaultdict

from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.session.endings import not_up_again
from dtsweep.session.node_choice import FailureCounts
from dtsweep.session.session import Session
from dtsweep.session.start_errors import SessionError
from dtsweep.sweep.point import World


class FailedStarts:
    """Sessions whose starts were ended by a death, one after the other, by their world."""

    def __init__(self, failures: FailureCounts) -> None:
        """Begin without one.

        Args:
            failures: of nodes; a death is counted there, too.
        """
        self._failures = failures
        self._deaths = defaultdict[World, list[str]](list)

    def came_up(self, world: World) -> None:
        """Forget the deaths of a world: a session of it has come up."""
        self._deaths.pop(world, None)

    def result_of(self, error: SessionError, session: Session | None) -> AttemptResult:
        """Result of the attempt that wanted a session that did not start."""
        if error.verdict is None or session is None:
            return AttemptResult(
                status=error.status, reason=str(error), hopeless_for=error.hopeless_for
            )
        if error.verdict.died_on is not None:
            # Each start by itself: it is no fault of the trial, which has not begun.
            self._failures.died(session.name, error.verdict.died_on)
        deaths = self._deaths[session.world]
        # What is left once nodes have gone is looked at before the next start.
        if error.status not in ("node_lost", "preempted"):
            deaths.append(session.name)
        not_up = not_up_again(error.status, str(error), deaths=len(deaths))
        if not_up.hopeless_for:
            self._failures.reset_nodes(deaths)
        return AttemptResult(
            status=not_up.status, reason=not_up.reason, hopeless_for=not_up.hopeless_for
        )
