"""What limits points, as it is shown: a table, a sentence, JSON values."""

from __future__ import annotations

import json

import pandas as pd

from dtsweep.analysis import bottleneck
from dtsweep.report.advice import bound_columns, bounds_counted, bounds_json
from tests.frames import trials

INPUT = {"step_mean_s": 0.1, "data_share": 0.6, "data_share_low": 0.58, "data_share_high": 0.62}
OPEN = INPUT | {"data_share": 0.5, "data_share_low": 0.4, "data_share_high": 0.6}


def rows(*points: dict[str, float]) -> pd.DataFrame:
    return bottleneck(trials(*points))


def test_a_table_says_what_limits_a_point_by_which_number_and_what_to_try() -> None:
    columns = bound_columns(rows(INPUT, OPEN))
    assert columns["limited by"] == ["input", "not known"]
    assert columns["because"][0] == "loading batches 60 ± 2 % of the step"
    assert columns["try next (share of the step)"] == ["workload 60 %, micro_batch 60 %", ""]


def test_points_are_counted_by_what_limits_them() -> None:
    counted = bounds_counted(rows(INPUT, INPUT, OPEN))
    assert counted.numbers == {"counts": {"input": 2, "not known": 1}}


def test_json_has_every_point_with_its_axes_and_none_for_the_unknown() -> None:
    told = json.loads(json.dumps(bounds_json(rows(INPUT, OPEN))))
    assert [row["bound"] for row in told] == ["input", None]
    assert told[0]["next_axes"][0] == {
        "axis": "workload",
        "at_most_share": 0.6,
        "why": "let batch() keep, decode beforehand or load ahead what it gives",
    }
    assert told[1]["next_axes"] == []
    assert told[1]["bound_share"] is None
