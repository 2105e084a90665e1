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
    ("more", "words"),
    [
        ({"step_s": None, "p50": 0.1, "rate": 140}, None),
        ({"mfu": float("nan"), "loss": float("nan")}, None),
        ({"memory": 0}, None),
        ({"global": 16}, None),
        ({"global": 64}, "global_batch is 64, and groups × micro_batch × accumulation 16"),
        ({"mfu": -0.1}, "mfu is -0.1"),
    ],
)
def test_a_contradiction_is_flagged_and_an_honest_row_is_not(
    more: dict[str, Any], words: str | None, tmp_path: Path
) -> None:
    (trial,) = stored(tmp_path, {**ROW, **more}).to_dict("records")
    if words is None:
        assert trial["status"] == "ok", trial["implausible"]
        assert pd.isna(trial["mfu"])
        assert pd.isna(trial["memory_peak_bytes"])
    else:
        assert trial["status"] == "skipped"
        assert words in trial["implausible"]


@pytest.mark.parametrize(
    ("more", "setting", "said"),
    [
        ({"gpus": 10**400}, "lr", "is not a whole number"),
        ({"step_s": "1_0"}, "lr", "runs.jsonl:1: step_s = '1_0' is not a number"),
        ({"step_s": "١"}, "lr", "is not a number"),
        ({"lr": 1}, '"our\\nrate"', "can't be the name of a column of results"),
    ],
)
def test_what_cannot_be_stored_is_one_line_before_anything_is(
    more: dict[str, Any], setting: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=re.escape(said)):
        stored(tmp_path, {**ROW, **more}, setting=setting)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [(2**64, "18446744073709551616"), ([1, 2], "[1, 2]")],
)
def test_a_setting_of_any_value_is_stored(value: Any, text: str, tmp_path: Path) -> None:
    # A step of 1e-310 s has an infinite rate, and leaves its results readable.
    row = {**ROW, "lr": value, "step_s": 1e-310}
    assert stored(tmp_path, row)["workload_lr"].tolist() == [text]


@pytest.mark.parametrize("values", [(None, 3), (3, None), (None, "few")])
def test_a_setting_without_values_has_no_type(values: tuple[Any, Any], tmp_path: Path) -> None:
    for gpus, value in enumerate(values, start=1):
        frame = stored(tmp_path, {**ROW, "gpus": gpus, "lr": value})
    assert frame["workload_lr"].isna().sum() == 1


def test_a_name_that_python_would_change_is_found_and_an_unknown_mode_has_no_semantics(
    tmp_path: Path,
) -> None:
    (tmp_path / "runs.csv").write_text("gpus,batch,step_µs\n1,8,190000\n2,8,200000\n")
    text = MAP.replace("step_ms / 1000", "step_µs / 1000000").replace('precision = "precision"', "")
    table_map = read_map(str(write_map(tmp_path, text.replace("ddp", "horovod"))))
    import_tables([tmp_path / "runs.csv"], table_map, results=tmp_path / "results")
    frame = dtsweep.load(tmp_path / "results")
    assert frame["step_mean_s"].tolist() == [0.19, 0.2]
    assert frame["semantics"].tolist() == ["exact", "unknown"]
