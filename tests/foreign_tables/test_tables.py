"""CSV, JSON lines and Parquet are read, or the refusal says why, in one line.

Rows are points and repeats by their settings and values.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import store_table
from tests.cli.called import called
from tests.foreign_tables.tables import NO_NAMES, ROW, imported, stored


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_files_are_read_with_the_places_of_their_rows(ending: str, tmp_path: Path) -> None:
    rows = [{**ROW, "step_mean_s": step_s, "workload_fused": True} for step_s in (0.1, 0.2)]
    table = pd.DataFrame(rows)
    path = tmp_path / f"runs.{ending}"
    if ending == "csv":
        # A byte order mark is no part of a name, and a blank line counts.
        text = table.to_csv(index=False).replace("\n", "\n\n", 1)
        path.write_bytes(text.encode("utf-8-sig"))
    elif ending == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    store_table(path, NO_NAMES, results=tmp_path / "results")
    frame = dtsweep.load(tmp_path / "results")
    assert frame["step_mean_s"].tolist() == [0.1, 0.2]
    assert frame["workload_fused"].tolist() == [True, True]
    first = 3 if ending == "csv" else 1
    places = [f"runs.{ending}:{number}" for number in (first, first + 1)]
    assert frame["imported_from"].tolist() == places


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("runs.xlsx", "", "its ending is none of .csv, .json, .jsonl, .ndjson, .parquet"),
        ("runs.csv", "", "No columns to parse from file"),
        ("runs.csv", "workers\n", "it has 0 rows, and 1 to 10,000 are read at once"),
        ("runs.csv", "workers\n" + "1\n" * 10_001, "it has 10001 rows, and 1 to 10,000"),
        ("runs.csv", "workers,mfu\n1,1,1\n", "its rows have more cells than the header"),
        ("runs.csv", "workers,mfu\n1,1\n1,1,1\n", "Expected 2 fields in line 3, saw 3"),
        ("runs.csv", "workers;mfu\n1;1\n", "column 'workers;mfu' is none that a table can give"),
        ("runs.csv", "workers,status\n1,ok\n", "--name OURS=status renames it"),
        (
            "runs.csv",
            "workers,mfu\ntwo,1\n",
            "trials.workers: Failed to parse string: 'two'",
        ),
        ("runs.csv", "workers,mfu\n1_0,1\n", "Failed to parse string: '1_0'"),
        ("runs.csv", "workers,mfu\n1.5,1\n", "Float value 1.500000 was truncated"),
        ("runs.jsonl", "[1]\n", "column '0' is none that a table can give"),
        ("runs.jsonl", '{"a":\n', "Expecting value: line 1 column 6 (char 5)"),
        ("runs.jsonl", "[" * 100_000, "maximum recursion depth"),
        ("runs.jsonl", '{"workload_lr": [1]}\n', "Expected bytes, got a 'list' object"),
        ("runs.jsonl", '{"workload_a\\nb": 1}\n', "is none that a table can give"),
        ("runs.parquet", "PAR1", "can't be read"),
    ],
)
def test_what_cannot_be_read_is_one_line_before_anything_is_stored(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=re.escape(words)) as caught:
        imported(tmp_path, text, name=name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_gone_and_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for name, said in (("gone.csv", "No such file"), ("pipe.csv", "it is a pipe, not a file")):
        with pytest.raises(SweepError, match=said):
            store_table(tmp_path / name, NO_NAMES, results=tmp_path / "r")


def test_a_mistake_in_names_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,mfu\n1,1\n")
    command = ("import", tmp_path / "runs.csv", "--results", tmp_path / "r", "--name")
    with pytest.raises(SweepError, match="no column 'gpu'; did you mean 'gpus'"):
        called(*command, "workers=gpu")
    with pytest.raises(SweepError, match="--name 'workers' must be OURS=THEIRS"):
        called(*command, "workers")
    with pytest.raises(SweepError, match="once for each column"):
        called(*command, "workers=gpus", "--name", "workers=mfu")
    with pytest.raises(SweepError, match="two columns of mfu, mfu have one name"):
        called(*command, "mfu=gpus")
    assert called("import", tmp_path / "runs.csv").exit_code == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"step_mean_s": None, "step_p50_s": 0.1, "samples_per_s": 140}, None),
        ({"mfu": float("nan"), "loss_last": float("inf")}, None),
        ({"global_batch": 16}, None),
        ({"global_batch": 64}, "global_batch is 64, and groups × micro_batch × accumulation 16"),
        ({"mfu": -0.1}, "mfu is -0.1"),
    ],
)
def test_a_contradiction_is_flagged_and_an_honest_row_is_not(
    more: dict[str, Any], words: str | None, tmp_path: Path
) -> None:
    (trial,) = stored(tmp_path, [{**ROW, **more}], name="runs.jsonl").to_dict("records")
    if words is None:
        assert trial["status"] == "ok", trial["implausible"]
        assert pd.isna([trial["mfu"], trial["loss_last"]]).all()
    else:
        assert trial["status"] == "skipped"
        assert words in trial["implausible"]


def test_an_unknown_mode_has_no_semantics_but_of_one_worker(tmp_path: Path) -> None:
    rows = [{**ROW, "workers": workers, "sync": "horovod"} for workers in (1, 2)]
    assert stored(tmp_path, rows)["semantics"].tolist() == ["exact", "unknown"]


@pytest.mark.parametrize("values", [(None, 3), (3, None), (3, "few")])
def test_a_setting_has_the_type_of_its_values(values: tuple[Any, Any], tmp_path: Path) -> None:
    for workers, value in enumerate(values, start=1):
        row = {**ROW, "workers": workers, "workload_layers": value}
        frame = stored(tmp_path, [row], name="runs.jsonl")
    # A number in one table and text in another is text.
    expected = [value if "few" not in values else str(value) for value in values]
    layers = frame["workload_layers"]
    assert layers.astype(object).where(layers.notna(), None).tolist() == expected


@pytest.mark.parametrize(
    ("name", "values", "repeats"),
    [
        ("backend", ["nccl", "gloo"], [1, 1]),
        ("model_parallel", [1, 2], [1, 1]),
        ("workload_commit", ["12e9999", "77e4321"], [1, 1]),
        # Whole numbers are equal however they are written.
        ("workload_lr", [1, 1.0, 2.5], [1, 2, 1]),
    ],
)
def test_rows_that_differ_in_a_setting_are_two_points(
    name: str, values: list[Any], repeats: list[int], tmp_path: Path
) -> None:
    rows = [
        {**ROW, "global_batch": 16, "data_parallel": None, "accumulation": None, name: value}
        | {"step_mean_s": 0.1 + index / 100}
        for index, value in enumerate(values)
    ]
    lines = imported(tmp_path, rows, name="runs.jsonl")
    assert "(2 points)" in lines[0]
    assert dtsweep.load(tmp_path / "results")["repeat"].tolist() == repeats


def test_a_changed_table_adds_its_new_rows_as_repeats(tmp_path: Path) -> None:
    def rows(*steps_s: float) -> list[dict[str, Any]]:
        return [{**ROW, "step_mean_s": step_s} for step_s in steps_s]

    assert imported(tmp_path, rows(0.1, 0.11))[-1].startswith("2 new rows")
    assert imported(tmp_path, rows(0.11, 0.1))[-1].startswith("0 new rows")
    # Equal rows of one table are all kept, once.
    for count in (2, 0):
        assert imported(tmp_path, rows(0.4, 0.4))[-1].startswith(f"{count} new rows")
    frame = dtsweep.load(tmp_path / "results")
    assert sorted(frame["step_mean_s"]) == [0.1, 0.11, 0.4, 0.4]
    assert sorted(frame["repeat"]) == [1, 2, 3, 4]
