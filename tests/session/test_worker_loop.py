"""What a rank writes to its log by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtsweep import Sweep
from dtsweep.session.logs import RankLog
from dtsweep.session.worker_loop import begin_trial
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import HEADING, Task, task_of
from tests.outcomes import Tokens


def task(**point: object) -> Task:
    return task_of(
        Sweep(workload=Tokens(), axes={}),
        Point(workload=Tokens(words=("two\nlines",)), **point),
        attempt=2,
    )


def test_a_trial_begins_with_one_line_that_names_it_and_its_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0.log").write_text("of the trial before\n")
    given = task(workers=2, sync="local_sgd", environment={"A": "1"})
    begin_trial(RankLog(tmp_path / "0.log"), given)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"{HEADING}trial {given.trial_id} attempt 2: workers=2 micro_batch=32 ")
    assert " sync=local_sgd sync_period=8 " in line
    assert line.endswith(" env.A=1 workload.width=8 workload.words=('two\\nlines',)")
    assert (tmp_path / "0.log").read_text() == "of the trial before\n"


def test_a_log_that_was_cleaned_away_costs_no_trial(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begin_trial(RankLog(tmp_path / "gone.log"), task())
    assert capfd.readouterr().err.startswith(HEADING)
