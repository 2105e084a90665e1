"""Odd cells, names and numbers of tables are read, flagged or refused in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.foreign_tables.maps import MAP, columns_of, write_map

COLUMNS = {
    "workers": "gpus",
    "micro_batch": "batch",
    "step_mean_s": "step_s",
    "step_p50_s": "p50",
    "samples_per_s": "rate",
    "mfu": "mfu",
    "memory_peak_bytes": "memory",
    "global_batch": "global",
    "loss_last": "loss",
}
CONSTANTS = ["accumulation=1", "sync=ddp"]
ROW = {"gpus": 2, "batch": 8, "step_s": 0.1}


def stored(folder: Path, row: dict[str, Any], *, setting: str = "lr") -> pd.DataFrame:
    """Results of a table of one row."""
    (folder / "runs.jsonl").write_text(json.dumps(row) + "\n")
    settings = columns_of({setting: "lr"}, row)
    parts = f"[columns]\n{columns_of(COLUMNS, row)}\n[settings]\n{settings}\n"
    table_map = read_map(str(write_map(folder, parts)), CONSTANTS)
    import_tables([folder / "runs.jsonl"], table_map, results=folder / "results")
    return dtsweep.load(folder / "results")


@pytest.mark.parametrize(
    "row",
    [
        {"gpus": 2, "batch": 8, "p50": 0.1, "rate": 140},
        {**ROW, "mfu": float("nan")},
        {**ROW, "loss": float("nan")},
        {**ROW, "memory": 0},
        {**ROW, "memory": float("nan")},
        {**ROW, "global": 16},
    ],
)
def test_an_honest_row_is_not_flagged(row: dict[str, Any], tmp_path: Path) -> None:
    (trial,) = stored(tmp_path, row).to_dict("records")
    assert trial["status"] == "ok", trial["implausible"]
    assert pd.isna(trial["mfu"])
    assert pd.isna(trial["memory_peak_bytes"])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {**ROW, "global": 64},
            "global_batch is 64, and groups × micro_batch × accumulation 16",
        ),
        ({**ROW, "mfu": -0.1}, "mfu is -0.1"),
    ],
)
def test_a_contradiction_is_flagged(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    (trial,) = stored(tmp_path, row).to_dict("records")
    assert trial["status"] == "skipped"
    assert words in trial["implausible"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**ROW, "gpus": 10**400}, "is not a whole number"),
        ({**ROW, "step_s": "1_0"}, "runs.jsonl:1: step_s = '1_0' is not a number"),
        ({**ROW, "step_s": "١"}, "is not a number"),
    ],
)
def test_a_cell_that_is_no_number_is_one_line(
    row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=re.escape(said)) as caught:
        stored(tmp_path, row)
    assert "runs.jsonl:1" in str(caught.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [(2**64, "18446744073709551616"), ([1, 2], "[1, 2]")],
)
def test_a_setting_of_any_value_is_stored(value: Any, text: str, tmp_path: Path) -> None:
    assert stored(tmp_path, {**ROW, "lr": value})["workload_lr"].tolist() == [text]


def test_a_setting_whose_name_is_no_column_s_is_refused_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    with pytest.raises(SweepError, match="can't be the name of a column of results"):
        stored(tmp_path, {**ROW, "lr": 1}, setting='"our\\nrate"')
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("values", [(None, 3), (3, None), (None, "few")])
def test_a_setting_without_values_has_no_type(values: tuple[Any, Any], tmp_path: Path) -> None:
    for gpus, value in enumerate(values, start=1):
        frame = stored(tmp_path, {**ROW, "gpus": gpus, "lr": value})
    assert frame["workload_lr"].isna().sum() == 1


def test_a_name_that_python_would_change_is_found(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,batch,step_µs\n2,8,200000\n")
    text = MAP.replace("step_ms / 1000", "step_µs / 1000000").replace('precision = "precision"', "")
    table_map = read_map(str(write_map(tmp_path, text)))
    import_tables([tmp_path / "runs.csv"], table_map, results=tmp_path / "results")
    assert dtsweep.load(tmp_path / "results")["step_mean_s"].tolist() == [0.2]


def test_the_semantics_of_an_unknown_mode_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,batch,step_ms,precision\n1,8,90,x\n2,8,100,x\n")
    table_map = read_map(str(write_map(tmp_path, MAP.replace("ddp", "horovod"))))
    import_tables([tmp_path / "runs.csv"], table_map, results=tmp_path / "results")
    assert dtsweep.load(tmp_path / "results")["semantics"].tolist() == ["exact", "unknown"]


@pytest.mark.parametrize("row", [{**ROW, "rate": float("inf")}, {**ROW, "step_s": 1e-310}])
def test_a_row_with_an_infinite_rate_leaves_its_results_readable(
    row: dict[str, Any], tmp_path: Path
) -> None:
    assert len(stored(tmp_path, row)) == 1
