"""When an attempt has taken too long; no Ray runs here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dtsweep import Sweep
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.scheduler import Running, Scheduler, overdue, without_head
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.plan.trial import Trial
from dtsweep.results.statuses import is_retried
from dtsweep.results.store import Results
from dtsweep.session.deadlines import attempt_bound_s
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens
from tests.session.test_slot import settings


def test_an_attempt_is_overdue_once_all_deadlines_of_its_session_have_passed(
    tmp_path: Path,
) -> None:
    running = under_way()
    bound_s = attempt_bound_s(running.task, node_timeout_s=1.0)
    running.watched_s = bound_s - 1.0
    assert overdue(running, settings(tmp_path)) is None
    running.watched_s = bound_s
    said = overdue(running, settings(tmp_path))
    assert said == (
        f"the session was not done with the attempt after {bound_s:.0f} s, "
        "all its deadlines together"
    )


def test_an_attempt_whose_result_could_not_be_fetched_is_known_as_not_stored(
    tmp_path: Path,
) -> None:
    sweep = Sweep(workload=Tokens(), axes={})
    recorder = Recorder(sweep, silent_outbox(Results(tmp_path / "r")), Progress(axes=[]))
    scheduler = Scheduler(Queue(sweep), [], recorder)
    scheduler.running["tune's name"] = attempt = under_way()
    # It has no slot that could be asked, as where the cluster is gone.
    scheduler.on_trial_complete("tune's name")
    assert isinstance(scheduler.failure, IndexError)
    assert scheduler.unstored == [attempt]
    # Tune is told to end, not to wait for it.
    assert scheduler.suggest("next") == Scheduler.FINISHED


def test_what_ended_while_the_head_was_silent_is_measured_again() -> None:
    lost = without_head(AttemptResult(status="ok"))
    assert (lost.status, is_retried(lost.status, attempt=1)) == ("node_lost", True)
    # What failed by itself says more.
    assert without_head(AttemptResult(status="user_error", reason="why")).reason == "why"


def under_way() -> Running:
    """An attempt that began."""
    point = Point(workload=Tokens())
    task = task_of(Sweep(workload=Tokens(), axes={}), point)
    trial = Trial(trial_id="t", point=point, repeat=1, why="")
    return Running(trial=trial, task=task, slot=0, began=1000.0, started_at=datetime.now(UTC))
