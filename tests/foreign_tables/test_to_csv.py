"""CSV files are read back by pandas, DuckDB and the standard library."""

from __future__ import annotations

import csv as csv_files
import json
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import pytest

import dtsweep
from dtsweep import SweepError
from dtsweep.escape import FORMULA, NUMBER
from dtsweep.results.schema import TEXT, TRIALS
from dtsweep.results.store import Results
from tests.foreign_tables.stored import export, private_texts, store_sweep


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_sweep(tmp_path_factory.mktemp("files") / "r")


@pytest.fixture(scope="module")
def csv(results: Path) -> Path:
    file = results.parent / "trials.csv"
    export(results, "--out", file)
    return file


def test_pandas_reads_the_trials_back_with_equal_numbers(results: Path, csv: Path) -> None:
    loaded, read = dtsweep.load(results), pd.read_csv(csv)
    assert list(read.columns) == list(loaded.columns)
    assert read["trial_id"].tolist() == [f"trial{number}" for number in range(1, 6)]
    numbers = loaded.select_dtypes("number").columns
    left = loaded[numbers].astype("float64")
    pd.testing.assert_frame_equal(read[numbers].astype("float64"), left, check_exact=True)
    assert json.loads(read["flags"][0]) == ["spiky"]
    assert pd.to_datetime(read["started_at"]).tolist() == loaded["started_at"].tolist()


def test_duckdb_finds_the_types_by_itself(csv: Path) -> None:
    names = ("workers", "latency_s", "overlap", "started_at", "reason")
    types = ", ".join(f"typeof({name})" for name in names)
    with duckdb.connect() as database:
        rows = database.execute(f"select {types}, latency_s, mfu from read_csv('{csv}')")
        first, *_ = rows.fetchall()
    assert first == (
        *("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP WITH TIME ZONE", "VARCHAR"),
        *(0.1 + 0.2, None),
    )


def test_trials_go_to_the_standard_output_without_a_file(
    results: Path, csv: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(results)
    assert capsys.readouterr().out == csv.read_text("utf-8")


def test_no_export_names_hosts_users_and_secrets(csv: Path) -> None:
    text = csv.read_text("utf-8")
    assert "user_error" in text
    assert [name for name in private_texts() if name in text] == []


def test_hosts_are_there_if_they_are_asked_for(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(results, "--with-hosts")
    text = capsys.readouterr().out
    host, home, _ = private_texts()
    assert host in text
    assert home in text


def test_a_file_that_can_t_be_written_is_said_in_one_line(results: Path) -> None:
    with pytest.raises(SweepError, match=r"--out .*: Is a directory; give another file"):
        export(results, "--out", results)


# Texts that somebody else chose

PAYLOAD = '=HYPERLINK("http://x","y")</script>\x00\x1b[2J\u202e/../../up\n![](http://x)'

OWN = {
    "semantics": "exact",
    "attempt_id": "a" * 32,
    "status": "ok",
    "role": "trial",
    "harness": "ray",
    "sources": "{}",
    "environment": "{}",
}
"""Columns that dtsweep itself reads back."""

JSON_COLUMNS = ("question", "measure", "command", "machine")
"""Columns that are refused where they are not JSON of their form."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial whose every other text column holds the payload."""
    folder = tmp_path_factory.mktemp("hostile") / "r"
    texts = {
        column.name: PAYLOAD
        for column in TRIALS
        if column.type == TEXT and column.name not in JSON_COLUMNS
    }
    numbers = {"latency_s": 0.5, "repeat": 1, "attempt": 1, "row_number": 1}
    times = {"started_at": datetime(2026, 3, 1, tzinfo=UTC)}
    Results(folder).commit(texts | numbers | times | OWN)
    return folder


def test_texts_of_others_are_exported_into_the_place_alone(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "a" / "b" / "out.x"
    out.parent.mkdir(parents=True)
    export(hostile, "--out", out)
    written = {file for file in tmp_path.rglob("*") if file.is_file()}
    assert written
    assert all(str(file).startswith(str(out.with_suffix(""))) for file in written)


def test_no_cell_of_a_csv_is_a_formula(hostile: Path, tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"
    export(hostile, "--out", file)
    for path in tmp_path.iterdir():
        with path.open(encoding="utf-8", newline="") as lines:
            cells = [cell for row in csv_files.reader(lines) for cell in row]
        formulas = [cell for cell in cells if FORMULA.match(cell) and not cell.startswith("'")]
        assert all(NUMBER.fullmatch(cell) for cell in formulas)
        assert "\x1b" not in path.read_text("utf-8")
