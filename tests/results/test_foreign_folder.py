"""A folder that somebody else has filled takes bounded memory, and nothing in it is followed."""

from __future__ import annotations

import base64
import math
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dtsweep.analysis.load import load
from dtsweep.errors import STORED, StorageError
from dtsweep.results.lease import holder
from dtsweep.results.parquet import FORMAT, REPLACES
from dtsweep.results.schema import table_schema
from dtsweep.results.storage import RECORD_BYTES, Storage
from dtsweep.results.store import Results
from tests.hostile import write_rows
from tests.results.test_store import commit, filled, sealed, write_sealed

PEAK = """
import resource, sys
from dtsweep.results.store import Results
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
results = Results(sys.argv[1])
try:
    rows = results.table(sys.argv[2]).num_rows
except Exception as error:
    rows = str(error)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (peak - before) // 1024, results.quarantined, sep="|")
"""


def read_apart(folder: Path, table: str = "trials") -> tuple[str, int, str]:
    """Rows (or the error), MiB of memory that reading took at its peak, and what was left out."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, folder, table], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    rows, peak_mib, quarantined = done.stdout.strip().split("|", 2)
    return rows, int(peak_mib), quarantined


# Memory


def test_files_that_take_too_much_together_are_an_error_or_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, *range(9))
    with monkeypatch.context() as patched:
        patched.setattr("dtsweep.results.table_files.MAX_BYTES", 10_000)
        patched.setattr("dtsweep.results.table_files.MEMORY_PARTS", 1 << 50)
        with pytest.raises(StorageError, match=r"trials unpacks to more than.*another folder"):
            Results(tmp_path).attempts()
    monkeypatch.setattr("dtsweep.results.merge.MERGED_BYTES", 1_000)
    Results(tmp_path).compact()
    assert len([*(tmp_path / "trials").iterdir()]) == 9
    assert len(Results(tmp_path).attempts()) == 9


def test_a_file_larger_than_any_of_ours_is_named_and_not_read(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    path = tmp_path / "trials" / "part-huge-0123456789abcdef.parquet"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    rows, peak_mib, quarantined = read_apart(tmp_path)
    assert rows == "1"
    assert "it has 1099511627776 bytes, over" in quarantined
    assert peak_mib < 80


def test_one_harmful_file_is_not_merged_with_honest_ones(tmp_path: Path) -> None:
    filled(tmp_path, *range(4))
    path = write_rows(tmp_path, "trials", [{"attempt_id": "theirs", "sources": "no JSON"}])
    Results(tmp_path).compact()
    results = Results(tmp_path)
    assert len(results.attempts()) == 4
    assert [name for name, _ in results.quarantined] == [f"trials/{path.name}"]


def test_a_reason_of_any_length_is_cut_to_what_readers_take(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1, reason="ü" * 1_000_000)
    results = Results(tmp_path)
    [row] = results.attempts()
    assert results.quarantined == []
    assert len(row["reason"]) <= STORED
    assert row["reason"].endswith("characters more)")


# Odd files


def test_folders_links_pipes_sockets_and_devices_are_named_and_not_opened(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    commit(Results(outside), 2)
    [other] = (outside / "trials").glob("*.parquet")
    for table in ("trials", "ranks", "steps"):
        folder = tmp_path / table
        (folder / "folder.parquet").mkdir()
        (folder / "link.parquet").symlink_to(other)
        (folder / other.name).symlink_to(other)
        (folder / "zero.parquet").symlink_to("/dev/zero")
        os.mkfifo(folder / "pipe.parquet")
        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            os.chdir(folder)
            server.bind("socket.parquet")
            os.chdir(here)
    results = Results(tmp_path)
    assert [row["attempt_id"] for row in results.attempts()] == ["attempt1"]
    kinds = {name.partition("/")[2]: reason for name, reason in results.quarantined}
    expected = {f"{kind}.parquet": kind for kind in ("folder", "link", "pipe", "socket")}
    expected |= {other.name: "link", "zero.parquet": "link"}
    assert kinds == {name: f"it is a {kind}, not a file" for name, kind in expected.items()}
    Results(tmp_path).compact()
    assert other.exists()


@pytest.mark.parametrize("table", ["trials", "steps"])
def test_a_table_whose_folder_is_a_link_is_refused(tmp_path: Path, table: str) -> None:
    for name in ("theirs", "elsewhere"):
        commit(Results(tmp_path / name), 1)
    shutil.rmtree(tmp_path / "theirs" / table)
    (tmp_path / "theirs" / table).symlink_to(tmp_path / "elsewhere" / table)
    with pytest.raises(StorageError, match=rf"/theirs/{table} is a link, which is not followed"):
        Results(tmp_path / "theirs").table(table)
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    assert len(Results(tmp_path / "linked").attempts()) == 1


def test_odd_records_of_runs_and_leases_are_named_and_not_opened(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    for name in ("runs", "lease"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "zero.json").symlink_to("/dev/zero")
        os.mkfifo(folder / "pipe.json")
        (folder / "nested.json").write_text("[" * 100_000)
        with (folder / "large.json").open("wb") as file:
            file.truncate(RECORD_BYTES + 1)
    results = Results(tmp_path)
    assert results.run_records() == []
    assert holder(Storage(tmp_path)) is None
    reasons = dict(results.quarantined)
    assert reasons["runs/zero.json"] == "it is a link, not a file"
    assert reasons["runs/pipe.json"] == "it is a pipe, not a file"
    assert reasons["runs/large.json"].startswith("it has ")
    assert "runs/nested.json" in reasons


def test_of_many_files_that_are_left_out_ten_are_named_in_a_line_each(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    (tmp_path / "trials" / "00\nb\x1b[2J\u202e.parquet").write_bytes(b"")
    for number in range(24):
        (tmp_path / "trials" / f"{number:02}.parquet").write_bytes(b"")
    with pytest.warns(UserWarning, match="left out") as caught:
        load(tmp_path)
    lines = [str(warning.message) for warning in caught]
    assert len(lines) == 11
    assert "/trials/08.parquet is left out: " in lines[9]
    assert r"00\nb\x1b[2J\u202e.parquet is left out: " in lines[0]
    assert lines[10] == f"15 more files of {tmp_path} are left out"


def test_metadata_that_contradicts_itself_is_not_believed(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    schema = table_schema("trials")
    hidden = schema.with_metadata({**schema.metadata, REPLACES: b"\xff"}).serialize()
    metadata = {**schema.metadata, b"ARROW:schema": base64.b64encode(hidden.to_pybytes())}
    sink = pa.BufferOutputStream()
    pq.write_table(schema.with_metadata(metadata).empty_table(), sink, **FORMAT, store_schema=False)
    write_sealed(tmp_path, "trials", sink.getvalue().to_pybytes())
    assert len(Results(tmp_path).attempts()) == 1


# JSON


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("trials", "environment", "no JSON"),
        ("trials", "environment", '{"A; rm x": "1"}'),
        ("trials", "sources", "[" * 10_000),
        ("trials", "command", "{}"),
        ("ranks", "machine", "null"),
    ],
)
def test_a_file_with_text_in_place_of_json_is_left_out(
    tmp_path: Path, table: str, column: str, text: str
) -> None:
    commit(Results(tmp_path), 1)
    row = {"attempt_id": "attempt1", "trial_id": "trial1", column: text}
    path = write_rows(tmp_path, table, [row])
    results = Results(tmp_path)
    results.table(table)
    [(name, reason)] = results.quarantined
    assert name == f"{table}/{path.name}"
    assert f"column {column} has a text that is not" in reason


def test_rows_of_training_that_diverged_are_read(tmp_path: Path) -> None:
    ids = {"attempt_id": "a", "trial_id": "t"}
    row = ids | {"status": "nan", "role": "trial", "workers": 2, "semantics": "exact"}
    row |= {"loss_first": math.inf, "loss_last": math.nan, "step_p50_s_high": math.inf}
    write_rows(tmp_path, "trials", [row | {"straggler": "rank 1 on b", "samples_per_s": 1.0}])
    write_rows(tmp_path, "steps", [ids | {"rank": 0, "step_s": 0.1, "loss": math.inf}])
    results = Results(tmp_path)
    [stored] = results.attempts()
    assert stored["loss_first"] == math.inf
    assert results.table("steps")["loss"].to_pylist() == [math.inf]
    assert results.quarantined == []


def test_a_column_whose_name_orders_a_terminal_about_is_left_out(tmp_path: Path) -> None:
    columns = {"attempt_id": ["x"], "workload_\x1b[2J": ["y"]}
    sealed(tmp_path, "trials", pa.table(columns, metadata=table_schema("trials").metadata))
    results = filled(tmp_path, 1)
    assert len(results.attempts()) == 1
    [(_, reason)] = results.quarantined
    assert r"column 'workload_\x1b[2J' is not a column" in reason
