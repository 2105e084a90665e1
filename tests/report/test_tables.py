"""Columns of tables of points."""

from __future__ import annotations

import pandas as pd

from dtsweep.report.tables import batch_columns


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
