"""Tables as trainers, spreadsheets and papers write them are read, or the refusal says how.

Rows are points and repeats by their settings and values, whatever their tables are called.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import Imported
from tests.conftest import Command
from tests.foreign_tables import maps
from tests.foreign_tables.maps import columns_of, imported

MAP = """
[columns]
workers = "GPUs"
micro_batch = "batch"
samples_per_s = "rate"
[constants]
accumulation = 1
sync = "ddp"
"""


def stored(folder: Path, table: str | bytes, more: str = "", **options: Any) -> pd.DataFrame:
    """Results of a table, by the map and these further lines."""
    return maps.stored(folder, table, MAP + more, **options)


# As people write them


@pytest.mark.parametrize(
    ("table", "read", "rate", "refused_without"),
    [
        (
            'GPUs,batch,rate\n4,8,"5,120"\n',
            "thousands = ','",
            5120,
            "runs.csv:2: rate = '5,120' .* thousands",
        ),
        # Points between thousands are not taken for decimal ones.
        ("GPUs;batch;rate\n4;8;1.120\n", "sep = ';'", 1.12, "one column, 'GPUs;batch;.* `sep`"),
    ],
)
def test_numbers_are_read_by_the_map_and_the_refusal_names_its_option(
    table: str, read: str, rate: float, refused_without: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=refused_without):
        stored(tmp_path, table)
    frame = stored(tmp_path, table, f"[read]\n{read}\n")
    assert frame["samples_per_s"].tolist() == [rate]


def test_a_spreadsheets_table_is_read_by_the_map(tmp_path: Path) -> None:
    table = "GPUs;batch;rate;Größe\n4;8;1.120,5;mittel\n".encode("cp1252")
    with pytest.raises(SweepError, match=r"can't be read: .*decode.*; \[read\] .* `encoding`$"):
        stored(tmp_path, table)
    with pytest.raises(SweepError, match=r"Expected 1 fields in line 2, saw 2; \[read\] .*`sep`"):
        stored(tmp_path, table, '[read]\nencoding = "cp1252"\n')
    read = '[settings]\nsize = "Größe"\n[read]\nsep = ";"\ndecimal = ","\nthousands = "."\n'
    frame = stored(tmp_path, table, f'{read}encoding = "cp1252"\n')
    assert frame["samples_per_s"].tolist() == [1120.5]
    assert frame["workload_size"].tolist() == ["mittel"]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("0.125", 0.125), ("12.5", 12.5), ("1.120", 1120), ("-1.120.500,25", -1120500.25)],
)
def test_only_groups_of_three_digits_are_thousands(text: str, rate: float, tmp_path: Path) -> None:
    table, read = f"GPUs;batch;rate\n4;8;{text}\n", '[read]\nsep = ";"\ndecimal = ","\n'
    frame = stored(tmp_path, table, f'{read}thousands = "."\n')
    assert frame["samples_per_s"].tolist() == [rate]
    if text == "1.120":
        words = r'thousands: give `thousands = "\."`, or leave `decimal` out$'
        with pytest.raises(SweepError, match=words):
            stored(tmp_path, table, read)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("runs.parquet", "", "its ending is none of .csv, .json, .jsonl, .ndjson"),
        ("runs.csv", "GPUs,batch,rate\n", "it has no rows"),
        ("runs.csv", "GPUs,rate,rate\n1,2,3\n", "two columns of GPUs, rate, rate have one name"),
        ("runs.jsonl", "[1]\n", 'a row is not an object such as {"a": 1}'),
        ("runs.jsonl", '{"a":\n', "Expecting value: line 1 column 6 (char 5)"),
    ],
)
def test_what_no_option_mends_is_refused_without_a_hint(
    name: str, text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=re.escape(words) + "$"):
        stored(tmp_path, text, name=name)


OBJECTS = [{"GPUs": 4, "batch": 8, "rate": rate, "log": [1, 2]} for rate in (100, 64.5)]


@pytest.mark.parametrize(
    ("name", "table", "rates"),
    [
        # A byte order mark is no part of a name.
        ("runs.csv", "GPUs,batch,rate\n4,8,100\n".encode("utf-8-sig"), [100]),
        # An object over many lines is a row; of a list each is one.
        ("train_results.json", json.dumps(OBJECTS[0], indent=2), [100]),
        ("runs.json", json.dumps(OBJECTS, indent=2), [100, 64.5]),
    ],
)
def test_files_are_read_as_trainers_write_them(
    name: str, table: str | bytes, rates: list[float], tmp_path: Path
) -> None:
    frame = stored(tmp_path, table, name=name)
    assert (frame["workers"].tolist(), frame["samples_per_s"].tolist()) == ([4] * len(rates), rates)
    if len(rates) > 1:
        assert frame["imported_from"].tolist() == ["runs.json:1", "runs.json:2"]


@pytest.mark.parametrize("name", ["Sharding Strategy", "`Sharding Strategy`"])
def test_a_text_is_a_setting(name: str, tmp_path: Path) -> None:
    table = "GPUs,batch,rate,Sharding Strategy\n4,8,100,FULL_SHARD\n"
    frame = stored(tmp_path, table, f'[settings]\nsharding = "{name}"\n')
    assert frame["workload_sharding"].tolist() == ["FULL_SHARD"]


def test_a_row_longer_than_the_header_is_refused_with_both_numbers(tmp_path: Path) -> None:
    table = "GPUs,batch,rate\n4,8,100\n4,8,100,1\n"
    with pytest.raises(SweepError, match=r"runs.csv.* Expected 3 fields in line 3, saw 4; .*`sep`"):
        stored(tmp_path, table)


def test_a_draft_of_a_map_is_made_from_the_header(tmp_path: Path, forked_command: Command) -> None:
    (tmp_path / "runs.csv").write_text("workers,global_batch,step_mean_s,strategy\n4,8,0.1,FULL\n")
    done = forked_command("import", "runs.csv", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "map.toml").write_text(done.stdout)
    command = ["import", "runs.csv", "--map", "map.toml", "--results", "results"]
    assert forked_command(*command, folder=tmp_path).returncode == 0
    (trial,) = dtsweep.load(tmp_path / "results").to_dict("records")
    assert (trial["workers"], trial["step_mean_s"], trial["samples_per_s"]) == (4, 0.1, 80)
    assert trial["workload_strategy"] == "FULL"


# Odd cells, names and numbers

COLUMNS = {
    **{"workers": "gpus", "micro_batch": "batch", "step_mean_s": "step_s", "step_p50_s": "p50"},
    **{"samples_per_s": "rate", "mfu": "mfu", "memory_peak_bytes": "memory", "loss_last": "loss"},
    **{"global_batch": "global", "backend": "backend", "model_parallel": "tensor"},
}
CONSTANTS = ["accumulation=1", "sync=ddp"]
ROW = {"gpus": 2, "batch": 8, "step_s": 0.1}


def of_row(folder: Path, row: dict[str, Any], *, setting: str = "lr") -> pd.DataFrame:
    """Results of a table of one row."""
    settings = columns_of({setting: "lr"}, row)
    parts = f"[columns]\n{columns_of(COLUMNS, row)}\n[settings]\n{settings}\n"
    table = json.dumps(row) + "\n"
    return maps.stored(folder, table, parts, name="runs.jsonl", constants=CONSTANTS)


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
    (trial,) = of_row(tmp_path, {**ROW, **more}).to_dict("records")
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
        of_row(tmp_path, {**ROW, **more}, setting=setting)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("value", "text"), [(2**64, "18446744073709551616"), ([1, 2], "[1, 2]")])
def test_a_setting_of_any_value_is_stored(value: Any, text: str, tmp_path: Path) -> None:
    # A step of 1e-310 s has an infinite rate, and leaves its results readable.
    row = {**ROW, "lr": value, "step_s": 1e-310}
    assert of_row(tmp_path, row)["workload_lr"].tolist() == [text]


@pytest.mark.parametrize("values", [(None, 3), (3, None), (None, "few")])
def test_a_setting_without_values_has_no_type(values: tuple[Any, Any], tmp_path: Path) -> None:
    for gpus, value in enumerate(values, start=1):
        frame = of_row(tmp_path, {**ROW, "gpus": gpus, "lr": value})
    assert frame["workload_lr"].isna().sum() == 1


def test_a_name_that_python_would_change_is_found_and_an_unknown_mode_has_no_semantics(
    tmp_path: Path,
) -> None:
    text = maps.MAP.replace("step_ms / 1000", "step_µs / 1000000").replace("ddp", "horovod")
    text = text.replace('precision = "precision"', 'memory_peak_bytes = "gib * 1024 * 1024 * 1024"')
    table = "gpus,batch,step_µs,gib\n1,8,190000,80.1\n2,8,200000,80.1\n"
    frame = maps.stored(tmp_path, table, text)
    assert frame["step_mean_s"].tolist() == [0.19, 0.2]
    assert frame["semantics"].tolist() == ["exact", "unknown"]
    # Bytes are whole.
    assert frame["memory_peak_bytes"].tolist() == [round(80.1 * 2**30)] * 2


# Points and repeats


def added(folder: Path, text: str, *, name: str = "runs.csv") -> tuple[Imported, pd.DataFrame]:
    """Import a table; lines are separated by spaces."""
    header = text.split(maxsplit=1)[0].split(",")
    settings = columns_of({"lr": "lr", "commit": "commit"}, header)
    parts = f"[columns]\n{columns_of(COLUMNS, header)}\n[settings]\n{settings}"
    table = "\n".join(text.split()) + "\n"
    done = imported(folder, table, parts, name=name, constants=[*CONSTANTS, "source=lab"])
    return done, dtsweep.load(folder / "results")


@pytest.mark.parametrize(
    ("name", "values", "repeats"),
    [
        ("backend", "nccl gloo", [1, 1]),
        ("tensor", "1 2", [1, 1]),
        ("commit", "12e9999 77e4321", [1, 1]),
        ("commit", "5e00 5.0", [1, 1]),
        ("commit", "1.2.3e5 1.2.3e6", [1, 1]),
        # Whole numbers are equal however they are written.
        ("lr", "1 1.0 2.5", [1, 2, 1]),
    ],
)
def test_rows_that_differ_in_a_setting_are_two_points(
    name: str, values: str, repeats: list[int], tmp_path: Path
) -> None:
    rows = [f"2,8,0.1{number},{value}" for number, value in enumerate(values.split())]
    done, frame = added(tmp_path, f"gpus,batch,step_s,{name} {' '.join(rows)}")
    assert done.points == 2
    assert frame["repeat"].tolist() == repeats


def test_tables_of_other_names_are_added_and_renamed_ones_are_not(tmp_path: Path) -> None:
    header = "gpus,batch,step_s"
    added(tmp_path, f"{header} 2,8,0.1 2,8,0.11", name="one.csv")
    done, frame = added(tmp_path, f"{header} 2,8,0.2 2,8,0.3", name="two.csv")
    assert done.added == 2
    assert sorted(frame["step_mean_s"]) == [0.1, 0.11, 0.2, 0.3]
    assert sorted(frame["repeat"]) == [1, 2, 3, 4]
    done, _ = added(tmp_path, f"{header} 2,8,0.3 2,8,0.2", name="three.csv")
    assert done.added == 0
    # A changed row is a further repeat; equal rows of one table are all kept, once.
    for count in (2, 0):
        done, frame = added(tmp_path, f"{header} 2,8,0.4 2,8,0.4", name="two.csv")
        assert done.added == count
    assert sorted(frame["step_mean_s"]) == [0.1, 0.11, 0.2, 0.3, 0.4, 0.4]
