"""When an attempt has taken too long; no Ray runs here."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dtsweep import Sweep
from dtsweep.driver.scheduler import Running, overdue
from dtsweep.plan.trial import Trial
from dtsweep.session.deadlines import attempt_bound_s
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from tests.outcomes import Tokens
from tests.session.test_lane import settings


def test_an_attempt_is_overdue_once_all_deadlines_of_its_session_have_passed(tmp_path: Path) -> None:
    point = Point(workload=Tokens())
    task = task_of(Sweep(workload=Tokens(), axes={}), point)
    trial = Trial(trial_id="t", point=point, repeat=1, why="")
    running = Running(trial=trial, task=task, lane=0, began=1000.0, started_at=datetime.now(UTC))
    bound_s = attempt_bound_s(task, node_timeout_s=1.0)
    running.watched_s = bound_s - 1.0
    assert overdue(running, settings(tmp_path)) is None
    running.watched_s = bound_s
    said = overdue(running, settings(tmp_path))
    assert said == f"the session was not done with the attempt after {bound_s:.0f} s, all its deadlines together"
