"""Rows of what a run brings: kept even where the results can't be written; and what the command exits with."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtsweep import StorageError, Sweep, load, workloads
from dtsweep.axes import candidates
from dtsweep.keeper import Keeper, Summary
from dtsweep.order import order_of
from dtsweep.plan import make_plan
from dtsweep.store import Results

SWEEP = Sweep(workload=workloads.Gpt(), axes={"workers": [1]})


def test_a_row_that_cannot_be_stored_is_safe_where_the_message_says(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    keeper = Keeper(SWEEP, Results(tmp_path / "file" / "r"), known=set())
    (trial,) = make_plan(SWEEP, candidates(SWEEP), []).to_run
    order = order_of(SWEEP, trial.point)
    with pytest.raises(StorageError, match="the last trial is safe in ") as error:
        keeper.cancelled(trial, order, datetime.now(UTC))
    found = re.search(r"safe in (\S+):", str(error.value))
    assert found is not None
    assert load(found[1])["attempt_id"].tolist() == [order.attempt_id]


@pytest.mark.parametrize(
    ("summary", "code"),
    [
        (Summary(statuses=Counter(ok=3, skipped=1, oom_device=1)), 0),
        (Summary(statuses=Counter(ok=3, user_error=1)), 1),
        (Summary(statuses=Counter(user_error=1, infeasible=1)), 4),
        (Summary(statuses=Counter(no_nodes=1), storage_error="full"), 5),
        (Summary(statuses=Counter(cancelled=1), signal_number=2), 130),
    ],
)
def test_of_several_faults_the_gravest_names_the_exit_code(summary: Summary, code: int) -> None:
    assert summary.exit_code == code
