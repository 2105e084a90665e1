"""Columns of tables of points."""

from __future__ import annotations

import pandas as pd

from dtsweep.report.labels import point_label
from dtsweep.report.tables import batch_columns, share_columns
from dtsweep.sweep.modes import MODE_FIELDS


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
    rows = pd.DataFrame(
        {"comm_share": unknown, "wait_share": unknown, "mfu": [0.3, 0.31], "hfu": [0.3, 0.31]}
    )
    assert share_columns(rows) == {"mfu\n%": ["30.0", "31.0"]}
    assert share_columns(rows.assign(hfu=[0.3, 0.4])) == {
        "mfu\n%": ["30.0", "31.0"],
        "hfu\n%": ["30.0", "40.0"],
    }
    assert list(share_columns(rows.assign(hfu=float("nan")))) == ["mfu\n%"]
