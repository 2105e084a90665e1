"""Sentences above the tables of a report, and what its tables say of points."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from dtsweep.analysis import Study, bottleneck
from dtsweep.report.advice import frontier_answer
from dtsweep.report.labels import point_label
from dtsweep.report.limits import bound_columns, bounds_counted
from dtsweep.report.records import records_of
from dtsweep.report.tables import batch_columns, share_columns
from dtsweep.sweep.goal import Question
from dtsweep.sweep.modes import MODE_FIELDS
from tests.frames import trials

STUDY = Study(pd.DataFrame(), question=Question(max_launches=3))

INPUT = {"step_mean_s": 0.1, "data_share": 0.6, "data_share_low": 0.58, "data_share_high": 0.62}
OPEN = INPUT | {"data_share": 0.5, "data_share_low": 0.4, "data_share_high": 0.6}


@pytest.mark.parametrize(("launches", "code"), [(2, "frontier_again"), (3, "frontier_goes_on")])
def test_an_open_frontier_names_the_run_that_goes_on(launches: int, code: str) -> None:
    points = pd.DataFrame(
        {
            "standing": ["frontier", "undecided", "dominated"],
            "on_frontier": [True, True, False],
            "is_open": [False, True, False],
            "launches": [2, launches, 1],
        }
    )
    first, step = frontier_answer(STUDY, points)
    counted = {name: first.numbers[name] for name in ("settled", "open", "points", "launches")}
    assert counted == {"settled": 1, "open": 1, "points": 3, "launches": launches}
    assert step.code == code


def test_where_all_points_are_on_the_frontier_none_is_open() -> None:
    points = pd.DataFrame(
        {"standing": ["frontier"] * 3, "on_frontier": True, "is_open": False, "launches": 2}
    )
    (only,) = frontier_answer(STUDY, points)
    assert only.text == (
        "Frontier: 3 of 3 points on it, 0 open; each within 3 % (95 % confidence each)."
    )


def test_points_are_said_to_be_limited_by_which_number() -> None:
    rows = bottleneck(trials(INPUT, INPUT, OPEN))
    columns = bound_columns(rows)
    assert columns["limited by"] == ["input", "input", "not known"]
    assert columns["because"][0] == "loading batches 60 ± 2 % of the step"
    assert bounds_counted(rows).numbers == {"counts": {"input": 2, "not known": 1}}
    first, _, unknown = json.loads(json.dumps(records_of(rows)))
    assert (first["bound"], unknown["bound"], unknown["bound_share"]) == ("input", None, None)


def test_arguments_of_a_script_have_columns_that_hide_no_other() -> None:
    arguments = {"batch-size": [8, 16], "workers": [0, 2], "lr": [0.1, 0.05], "--lr": [1.0, None]}
    rows = pd.DataFrame(
        {"workers": [1, 2]} | {f"workload_args.{name}": v for name, v in arguments.items()}
    )
    columns = batch_columns(rows, varying=list(rows))
    assert list(columns) == ["workers", "batch-\nsize", "args.\nworkers", "lr", "args.--lr"]
    assert columns["workers"] == ["1", "2"]
    assert columns["lr"] == ["0.1", "0.05"]
    assert columns["args.--lr"] == ["1", ""]


def test_fields_that_a_mode_of_the_workload_reads_are_in_its_label() -> None:
    unread = dict.fromkeys((*MODE_FIELDS, "compression"))
    row = pd.Series({**unread, "sync": "own", "sync_period": 4})
    assert point_label(row, ["sync_period"]) == "own sync_period=4"


def test_hfu_is_shown_where_work_is_done_again() -> None:
    unknown = [float("nan")] * 2
    shares = {"comm_share": unknown, "wait_share": unknown, "mfu": [0.3, 0.31], "hfu": [0.3, 0.31]}
    rows, mfu = pd.DataFrame(shares), {"mfu\n%": ["30.0", "31.0"]}
    assert share_columns(rows) == mfu
    assert share_columns(rows.assign(hfu=[0.3, 0.4])) == mfu | {"hfu\n%": ["30.0", "40.0"]}
    assert share_columns(rows.assign(hfu=float("nan"))) == mfu
