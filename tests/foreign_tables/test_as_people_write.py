"""Tables as trainers, spreadsheets and papers write them are read, or the refusal says how."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.conftest import Command
from tests.foreign_tables.maps import write_map

MAP = """
[columns]
workers = "GPUs"
micro_batch = "batch"
samples_per_s = "rate"
[constants]
accumulation = 1
sync = "ddp"
"""


def stored(
    folder: Path, table: str | bytes, text: str = MAP, *, name: str = "runs.csv"
) -> pd.DataFrame:
    """Results of a table of this text, by a map."""
    (folder / name).write_bytes(table if isinstance(table, bytes) else table.encode())
    table_map = read_map(str(write_map(folder, text)))
    import_tables([folder / name], table_map, results=folder / "results")
    return dtsweep.load(folder / "results")


def test_thousands_are_read_by_the_map_and_the_refusal_names_them(tmp_path: Path) -> None:
    table = 'GPUs,batch,rate\n4,8,"5,120"\n'
    with pytest.raises(SweepError, match=r"runs.csv:2: rate = '5,120' .* thousands and decimal"):
        stored(tmp_path, table)
    frame = stored(tmp_path, table, MAP + '[read]\nthousands = ","\n')
    assert frame["samples_per_s"].tolist() == [5120]


def test_a_spreadsheets_table_is_read_by_the_map(tmp_path: Path) -> None:
    table = "GPUs;batch;rate;Größe\n4;8;1.120,5;mittel\n".encode("cp1252")
    with pytest.raises(SweepError, match=r"can't be read: .*decode.*; \[read\] .* `encoding`$"):
        stored(tmp_path, table)
    with pytest.raises(SweepError, match=r"Expected 1 fields in line 2, saw 2; \[read\] .*`sep`"):
        stored(tmp_path, table, MAP + '[read]\nencoding = "cp1252"\n')
    read = '[settings]\nsize = "Größe"\n[read]\nsep = ";"\ndecimal = ","\nthousands = "."\n'
    frame = stored(tmp_path, table, f'{MAP}{read}encoding = "cp1252"\n')
    assert frame["samples_per_s"].tolist() == [1120.5]
    assert frame["workload_size"].tolist() == ["mittel"]


def test_another_separator_is_hinted_at_where_it_gives_one_column(tmp_path: Path) -> None:
    table = "GPUs;batch;rate\n4;8;100\n"
    with pytest.raises(SweepError, match=r"one column, 'GPUs;batch;rate'; \[read\] .* `sep`"):
        stored(tmp_path, table)


def test_points_between_thousands_are_not_taken_for_decimal_ones(tmp_path: Path) -> None:
    table = "GPUs;batch;rate\n4;8;1.120\n"
    read = f'{MAP}[read]\nsep = ";"\n'
    with pytest.raises(
        SweepError, match=r'thousands: give `thousands = "\."`, or leave `decimal` out$'
    ):
        stored(tmp_path, table, f'{read}decimal = ","\n')
    frame = stored(tmp_path, table, read)
    assert frame["samples_per_s"].tolist() == [1.12]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("0.125", 0.125), ("12.5", 12.5), ("1.120", 1120), ("-1.120.500,25", -1120500.25)],
)
def test_only_groups_of_three_digits_are_thousands(text: str, rate: float, tmp_path: Path) -> None:
    table = f"GPUs;batch;rate\n4;8;{text}\n"
    read = '[read]\nsep = ";"\ndecimal = ","\nthousands = "."\n'
    frame = stored(tmp_path, table, MAP + read)
    assert frame["samples_per_s"].tolist() == [rate]


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


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    table = "GPUs,batch,rate\n4,8,100\n".encode("utf-8-sig")
    assert stored(tmp_path, table)["workers"].tolist() == [4]


def test_an_object_over_many_lines_is_a_row(tmp_path: Path) -> None:
    table = json.dumps({"GPUs": 2, "batch": 8, "rate": 64.5, "log": [1, 2]}, indent=2)
    frame = stored(tmp_path, table, name="train_results.json")
    assert frame["samples_per_s"].tolist() == [64.5]


def test_a_list_of_objects_is_a_row_each(tmp_path: Path) -> None:
    rows = [{"GPUs": gpus, "batch": 8, "rate": 64} for gpus in (1, 2)]
    table = json.dumps(rows, indent=2)
    frame = stored(tmp_path, table, name="runs.json")
    assert frame["imported_from"].tolist() == ["runs.json:1", "runs.json:2"]


@pytest.mark.parametrize("name", ["Sharding Strategy", "`Sharding Strategy`"])
def test_a_text_is_a_setting(name: str, tmp_path: Path) -> None:
    table = "GPUs,batch,rate,Sharding Strategy\n4,8,100,FULL_SHARD\n"
    frame = stored(tmp_path, table, f'{MAP}[settings]\nsharding = "{name}"\n')
    assert frame["workload_sharding"].tolist() == ["FULL_SHARD"]


def test_a_row_longer_than_the_header_is_refused_with_both_numbers(tmp_path: Path) -> None:
    table = "GPUs,batch,rate\n4,8,100\n4,8,100,1\n"
    with pytest.raises(SweepError, match=r"runs.csv.* Expected 3 fields in line 3, saw 4; .*`sep`"):
        stored(tmp_path, table)


def test_bytes_of_a_memory_in_gib_are_whole(tmp_path: Path) -> None:
    table = "GPUs,batch,rate,gib\n4,8,100,80.1\n"
    memory = 'memory_peak_bytes = "gib * 1024 * 1024 * 1024"\n[constants]'
    frame = stored(tmp_path, table, MAP.replace("[constants]", memory))
    assert frame["memory_peak_bytes"].tolist() == [round(80.1 * 2**30)]


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
