from __future__ import annotations

import math
import random
import shutil
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dtsweep.analysis.load import load
from dtsweep.errors import StorageError, SweepError
from dtsweep.results import compaction, frames, merge
from dtsweep.results.merge import LARGE_BYTES, batches
from dtsweep.results.parquet import REPLACES, CorruptPartError, arrow_table, decode, encode, named
from dtsweep.results.schema import SCHEMA_VERSION, table_schema
from dtsweep.results.store import Results
from tests.processes import python_begun

START = datetime(2026, 1, 1, tzinfo=UTC)


def commit(results: Results, number: int, *, width: Any = 256, **fields: Any) -> None:
    """Store attempt `number` with two ranks of two steps, step times 1000 x number + 0..3."""
    ids: dict[str, Any] = {"attempt_id": f"attempt{number}", "trial_id": f"trial{number}"}
    measured = {"status": "ok", "workers": 2, "step_mean_s": 0.5, "flags": ["adjacent_launches"]}
    own = {"started_at": START + timedelta(seconds=number), "workload_width": width}
    results.commit(
        ids | measured | own | fields,
        ranks=[{"rank": 0, "node": "a"}, {"rank": 1, "node": "b"}],
        steps={
            "rank": np.array([0, 0, 1, 1]),
            "step": np.array([0, 1, 0, 1]),
            "warmup": np.array([True, False, True, False]),
            "step_s": 1000.0 * number + np.arange(4),
            "loss": np.array([1.0, math.nan, 1.0, 0.5]),
            "data_s": None,
        },
        workload_types={"width": type(width)},
    )


def filled(folder: Path, *numbers: int) -> Results:
    """Store these attempts; the results are those of a fresh reader."""
    for number in numbers:
        commit(Results(folder), number)
    return Results(folder)


def files(results: Path, table: str) -> list[Path]:
    return sorted((results / table).glob("*.parquet"))


def flip(file: Path, position: int) -> None:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def contents(results: Path) -> tuple[list[str], list[float], int]:
    """What a reader sees: attempts, step times, rows of ranks."""
    reader = Results(results)
    ids = [row["attempt_id"] for row in reader.attempts()]
    times = sorted(reader.table("steps")["step_s"].to_pylist())
    ranks = reader.table("ranks").num_rows
    assert reader.quarantined == []
    return ids, times, ranks


def stored(*numbers: int) -> tuple[list[str], list[float], int]:
    times = [1000.0 * number + index for number in numbers for index in range(4)]
    return [f"attempt{number}" for number in numbers], times, 2 * len(numbers)


def write_sealed(folder: Path, table: str, data: bytes) -> Path:
    """Write a file as somebody else could who knows how ours are named."""
    path = folder / table / named("part-theirs", data)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def sealed(folder: Path, table: str, rows: pa.Table, **options: Any) -> Path:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)
    return write_sealed(folder, table, sink.getvalue().to_pybytes())


# What is stored comes back


def test_what_was_committed_is_read_back(tmp_path: Path) -> None:
    (row,) = filled(tmp_path, 1).attempts()
    expected = {"attempt_id": "attempt1", "workers": 2, "step_mean_s": 0.5, "workload_width": 256}
    assert {name: row[name] for name in expected} == expected
    assert (row["flags"], row["tokens_per_s"]) == (["adjacent_launches"], None)
    assert load(tmp_path)["started_at"].tolist() == [START + timedelta(seconds=1)]
    assert contents(tmp_path) == stored(1)
    # Unknown stays null, and a loss that is not a number stays one.
    steps = Results(tmp_path).table("steps")
    assert (steps["data_s"].null_count, steps["loss"].null_count) == (4, 0)
    assert math.isnan(steps["loss"][1].as_py())


def test_frames_keep_whole_numbers_whole_beside_nulls(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1, global_batch=64, fresh=True)
    commit(Results(tmp_path), 2, sync="parameter_server")
    frame = load(tmp_path)
    types = {"global_batch": "Int64", "workers": "Int64", "fresh": "boolean"}
    types |= {"step_mean_s": "float64", "started_at": "datetime64[us, UTC]"}
    assert frame.dtypes.astype(str)[[*types]].to_dict() == types
    assert frame["global_batch"].isna().tolist() == [False, True]
    steps = frames.steps(tmp_path)
    assert steps.loc[~steps["warmup"], "step_s"].tolist() == [1001.0, 1003.0, 2001.0, 2003.0]


@pytest.mark.parametrize(
    ("rows", "newest"),
    [
        (["a ray ok", "a ray ok", "a ray hang"], [2]),
        (["b ray hang", "b ray rank_died"], [2]),
        (["c ray nan", "c ray ok"], [2]),
        # A trial of each harness; on Ray the first is the newest `ok`.
        (["a ray ok", "a in_process ok", "a ray rank_died"], [1, 2]),
        (["a ray ok", "a in_process ok", "a ray rank_died", "a ray ok"], [2, 4]),
    ],
)
def test_load_takes_of_each_trial_and_harness_the_newest_ok_attempt_else_the_newest(
    tmp_path: Path, rows: list[str], newest: list[int]
) -> None:
    for number, row in enumerate(rows, 1):
        names = ("trial_id", "harness", "status")
        commit(Results(tmp_path), number, **dict(zip(names, row.split(), strict=True)))
    assert load(tmp_path)["attempt_id"].tolist() == [f"attempt{number}" for number in newest]


def test_load_has_every_canary_that_was_measured_or_none(tmp_path: Path) -> None:
    results, canary = Results(tmp_path), {"trial_id": "watch", "role": "canary"}
    commit(results, 1, **canary)
    assert len(load(tmp_path)) == 0
    commit(results, 2, trial_id="a", role="trial", status="hang")
    commit(results, 3, **canary)
    commit(results, 4, trial_id="a", role="trial")
    commit(results, 5, **canary, status="rank_died")
    commit(results, 6, trial_id="b", role="trial")
    assert load(tmp_path)["attempt_id"].tolist() == ["attempt4", "attempt6"]
    both = load(tmp_path, canaries=True)
    assert both["attempt_id"].tolist() == [f"attempt{number}" for number in (1, 3, 4, 5, 6)]
    assert (both["role"] == "canary").tolist() == [True, True, False, True, False]


def test_what_are_no_results_is_said_with_what_to_run(tmp_path: Path) -> None:
    commit(Results(tmp_path / "r"), 1)
    (tmp_path / "README.md").write_text("words")
    nothing = r"no results in .*none; .*dtsweep run SWEEP.py --results .*none"
    for read in (load, frames.steps):
        with pytest.raises(SweepError, match=nothing):
            read(tmp_path / "none")
    with pytest.raises(SweepError, match=r"README\.md is a file; results are a folder"):
        load(tmp_path / "README.md")
    with pytest.raises(SweepError, match=r"a part of some; did you mean .*r\?"):
        load(tmp_path / "r" / "trials")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step_men_s": 1.0}, "trials has no columns.*step_men_s"),
        ({"status": "failed"}, "status 'failed' is none of"),
        ({"workers": "two"}, r"trials\.workers"),
        ({"workers": 2.5}, r"trials\.workers"),
        ({"attempt_id": "../evil"}, "not a name for a file"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(tmp_path: Path, fields: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        commit(Results(tmp_path), 1, **fields)
    assert contents(tmp_path) == stored()


@pytest.mark.parametrize(
    ("widths", "read"),
    [
        ((256, 0.5), [256.0, 0.5]),
        ((256, "[64, 32]"), ["256", "[64, 32]"]),
        # Neither a whole number nor a float has both.
        ((2**60 + 1, 0.5), [str(2**60 + 1), "0.5"]),
    ],
)
def test_a_field_of_several_types_is_read_without_a_loss(
    tmp_path: Path, widths: tuple[Any, Any], read: list[Any]
) -> None:
    for number, width in enumerate(widths):
        commit(Results(tmp_path), number, width=width)
    for _ in range(2):
        assert [row["workload_width"] for row in Results(tmp_path).attempts()] == read
        Results(tmp_path).compact()


def test_other_tools_read_a_folder_in_which_a_write_was_cut_off(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    (part,) = files(tmp_path, "trials")
    part.with_name(f"{part.name}.123.tmp").write_bytes(part.read_bytes()[:100])
    trials, steps = (str(tmp_path / table / "*.parquet") for table in ("trials", "steps"))
    query = f"SELECT step_mean_s, workload_width FROM '{trials}'"
    assert duckdb.execute(query).fetchall() == [(0.5, 256)]
    assert polars.read_parquet(trials)["attempt_id"].to_list() == ["attempt1"]
    assert contents(tmp_path) == stored(1)
    filled(tmp_path, 2).compact()
    assert duckdb.execute(f"SELECT sum(step_s) FROM '{steps}'").fetchall() == [(12012.0,)]
    assert polars.read_parquet(steps)["step_s"].sum() == 12012.0


def test_files_say_units_and_have_zstd_and_page_checksums(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    (part,) = files(tmp_path, "trials")
    assert pq.read_schema(part).field("window_s").metadata[b"unit"] == b"s"
    column = pq.read_metadata(part).row_group(0).column(0)
    assert column.compression == "ZSTD"
    flip(part, column.data_page_offset + 60)
    with pytest.raises(OSError, match="CRC checksum"):
        pq.read_table(part, page_checksum_verification=True)


# Kills and second writers


@pytest.mark.parametrize("what", ["commit", "compact"])
def test_a_kill_at_any_line_that_touches_files_loses_and_doubles_nothing(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "READERS", 1)
    folder, states = tmp_path / "original", dict[Any, Path]()

    def act(where: Path) -> None:
        Results(where).compact() if what == "compact" else commit(Results(where), 4)

    def keep_state(frame: Any, event: str, _: Any) -> Any:
        """Copy what a kill before this line would leave."""
        if frame.f_code.co_name not in ("write", "write_local", "delete"):
            return None
        state = tuple(sorted((path.name, path.stat().st_size) for path in folder.rglob("*.*")))
        if state not in states:
            states[state] = tmp_path / str(len(states))
            shutil.copytree(folder, states[state])
        return keep_state

    filled(folder, 1, 2)
    Results(folder).compact()
    commit(Results(folder), 3)
    threading.settrace(keep_state)
    sys.settrace(keep_state)
    try:
        act(folder)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    done = stored(1, 2, 3, *([4] if what == "commit" else []))
    assert contents(folder) == done
    assert len(states) > 8
    for copy in states.values():
        assert contents(copy) in (stored(1, 2, 3), done)
        act(copy)
        assert contents(copy) == done


def test_rows_without_a_trial_row_do_not_exist(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    for table in ("trials", "ranks"):
        next((tmp_path / table).glob("part-attempt2-*")).unlink()
        assert contents(tmp_path) == stored(1)


def test_compaction_keeps_the_rows_of_a_commit_under_way_and_counts_a_copy_once(
    tmp_path: Path,
) -> None:
    filled(tmp_path, 1, 1, 2, 3)
    for table in ("trials", "ranks", "steps"):
        (part,) = (tmp_path / table).glob("part-attempt1-*")
        shutil.copy(part, part.with_name(part.name.replace("part-", "part-copy-")))
    (part,) = (tmp_path / "trials").glob("part-attempt3-*")
    data = part.read_bytes()
    part.unlink()
    assert contents(tmp_path) == stored(1, 2)
    Results(tmp_path).compact()
    assert contents(tmp_path) == stored(1, 2)
    part.write_bytes(data)
    assert contents(tmp_path) == stored(1, 2, 3)


def test_a_row_is_rewritten_a_few_times_and_files_stay_few_however_many_are_stored() -> None:
    # Bytes of a part and of a merged file by its rows, as measured: what columns are called weighs
    # most.
    sizes: dict[str, int] = {}
    rows: dict[str, int] = {}
    rewritten = most_files = 0
    for number in range(20_000):
        sizes[f"part{number}"], rows[f"part{number}"] = 60_000, 1
        if number % 64:
            continue
        while chosen := batches(sizes):
            names = chosen[0]
            size, inside = (sum(each.pop(name) for name in names) for each in (sizes, rows))
            assert size <= LARGE_BYTES
            rewritten += size
            name = f"compacted{number}-{len(sizes)}"
            sizes[name], rows[name] = 60_000 + 20_000 * inside, inside
        most_files = max(most_files, len(sizes))
    assert sum(rows.values()) == 20_000
    assert rewritten < 12 * 20_000 * 60_000
    large = sum(size >= LARGE_BYTES / 2 for size in sizes.values())
    assert most_files - large < 12


def test_what_is_merged_in_pieces_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_PIECE_BYTES", 1000)
    for number in range(6):
        commit(Results(tmp_path), number, width=256 if number % 2 else "[64, 32]")
    commit(Results(tmp_path), 6, width=0.5)
    commit(Results(tmp_path), 6, width=0.5)
    Results(tmp_path).compact()
    (steps,) = files(tmp_path, "steps")
    assert pq.ParquetFile(steps).num_row_groups > 2
    assert contents(tmp_path) == stored(*range(7))
    assert Results(tmp_path).attempts()[6]["workload_width"] == "0.5"
    # Row groups of one attempt in two files count once, too.
    monkeypatch.setattr(merge, "_PIECE_BYTES", 1 << 20)
    shutil.copy(steps, steps.with_name(steps.name.replace("compacted-", "part-copy-")))
    Results(tmp_path).compact()
    assert contents(tmp_path) == stored(*range(7))


def test_a_compacted_file_that_is_not_whole_takes_the_place_of_no_part(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    parts = {part: part.read_bytes() for part in files(tmp_path, "trials")}
    Results(tmp_path).compact()
    (compacted,) = files(tmp_path, "trials")
    flip(compacted, 10)
    for part, before in parts.items():
        part.write_bytes(before)
    results = Results(tmp_path)
    assert len(results.attempts()) == 2
    assert [name for name, _ in results.quarantined] == [f"trials/{compacted.name}"]
    results.compact()
    assert len(Results(tmp_path).attempts()) == 2


def test_a_compacted_file_whose_list_of_parts_is_damaged_is_left_out_by_the_next_compaction(
    tmp_path: Path,
) -> None:
    filled(tmp_path, 1, 2).compact()
    (compacted,) = files(tmp_path, "trials")
    rows = pq.read_table(compacted)
    damaged = {**rows.schema.metadata, REPLACES: b"[\xff]"}
    pq.write_table(rows.replace_schema_metadata(damaged), compacted)
    filled(tmp_path, 3, 4).compact()
    assert [row["attempt_id"] for row in Results(tmp_path).attempts()] == ["attempt3", "attempt4"]


WRITE_AND_COMPACT = """
import sys
import threading
from tests.results.test_store import commit
from dtsweep.results.store import Results

results = Results(sys.argv[1])
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 10):
    commit(results, number)
    if number % 5 == 0:
        results.compact()
"""


@pytest.mark.slow
def test_two_writers_that_compact_under_a_reader_lose_and_double_nothing(tmp_path: Path) -> None:
    writers = [python_begun(WRITE_AND_COMPACT, tmp_path, first) for first in (100, 200)]
    before = 0
    while any(writer.poll() is None for writer in writers):
        attempts = [row["attempt_id"] for row in Results(tmp_path).attempts()]
        assert len(attempts) == len(set(attempts)) >= before
        before = len(attempts)
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert contents(tmp_path) == stored(*range(100, 110), *range(200, 210))


# Broken, foreign, old, new and hostile files


def test_a_part_cut_off_anywhere_is_quarantined_by_name(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    part = files(tmp_path, "trials")[0]
    data = part.read_bytes()
    for size in [*range(0, len(data), len(data) // 25), len(data) - 1]:
        part.write_bytes(data[:size])
        results = Results(tmp_path)
        assert [row["attempt_id"] for row in results.attempts()] == ["attempt2"]
        ((name, reason),) = results.quarantined
        assert name == f"trials/{part.name}"
        assert "truncated or changed" in reason


def example() -> tuple[str, bytes]:
    columns = {"attempt_id": ["x"], "trial_id": ["y"], "status": ["ok"], "step_mean_s": [0.5]}
    return encode(arrow_table("trials", columns), stem="part-x")


def test_every_flipped_bit_is_noticed() -> None:
    name, data = example()
    generator, size = random.Random(0), len(data)
    drawn = generator.choices(range(size), k=2000)
    for position in [*range(8), *range(size - 64, size), *drawn]:
        flipped = bytearray(data)
        flipped[position] ^= 1 << generator.randrange(8)
        with pytest.raises(CorruptPartError):
            decode(bytes(flipped), name=name, table="trials")


def test_no_flipped_bit_crashes_the_reader_even_with_a_fitting_digest() -> None:
    _, data = example()
    generator = random.Random(1)
    refused = 0
    for position in generator.choices(range(len(data)), k=300):
        flipped = bytearray(data)
        flipped[position] ^= 1 << generator.randrange(8)
        try:
            decode(bytes(flipped), name=named("part-x", bytes(flipped))[0], table="trials")
        except (CorruptPartError, StorageError):
            refused += 1
    assert refused > 0


def test_the_newest_attempt_is_the_one_stored_last_although_a_clock_jumped_back_an_hour(
    tmp_path: Path,
) -> None:
    back = START - timedelta(hours=1)
    for number, (status, at) in enumerate((("nan", START), ("user_error", back)), 1):
        row = {"row_number": number, "status": status, "started_at": at}
        commit(Results(tmp_path), number, trial_id="trial1", **row)
    assert [row["attempt_id"] for row in Results(tmp_path).attempts()] == ["attempt1", "attempt2"]
    assert load(tmp_path)["status"].tolist() == ["user_error"]


def test_reading_warns_of_each_file_that_it_leaves_out(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    trial, step = files(tmp_path, "trials")[0], files(tmp_path, "steps")[1]
    for part in (trial, step):
        part.write_bytes(part.read_bytes()[:-1])
    for part, read, rows in ((trial, load, 1), (step, frames.steps, 0)):
        with pytest.warns(UserWarning, match=f"{part.name} is left out: .*truncated"):
            assert len(read(tmp_path)) == rows
        part.unlink()


def test_a_file_of_somebody_else_is_left_out_and_named(tmp_path: Path) -> None:
    commit(Results(tmp_path), 1)
    metadata, ids = table_schema("trials").metadata, {"attempt_id": ["z"]}
    (tmp_path / "trials" / "mine.parquet").write_bytes(b"PAR1")
    double = pa.table([["z"], ["z"]], names=["attempt_id", "attempt_id"])
    nameless = {"attempt_id": pa.nulls(1, pa.string())}
    for theirs in (
        pa.table(ids),
        pa.table(ids | {"speed": [1]}, metadata=metadata),
        double.replace_schema_metadata(metadata),
        pa.table(nameless, metadata=metadata),
        pa.table(ids, metadata={**metadata, REPLACES: b"7"}),
    ):
        sealed(tmp_path, "trials", theirs)
    results = Results(tmp_path)
    assert [row["attempt_id"] for row in results.attempts()] == ["attempt1"]
    assert len(results.quarantined) == 6
    assert "column speed of type int64 is not a column of trials" in str(results.quarantined)


def test_an_older_file_lacks_columns_and_they_read_as_null(tmp_path: Path) -> None:
    commit(Results(tmp_path), 2)
    old, metadata = {"attempt_id": ["attempt1"], "status": ["ok"]}, table_schema("trials").metadata
    sealed(tmp_path, "trials", pa.table(old, metadata=metadata))
    workers = {row["attempt_id"]: row["workers"] for row in Results(tmp_path).attempts()}
    assert workers == {"attempt1": None, "attempt2": 2}


def test_a_file_of_a_newer_dtsweep_is_refused_with_what_to_do(tmp_path: Path) -> None:
    version = str(SCHEMA_VERSION + 1)
    sealed(tmp_path, "trials", pa.table({"x": [1]}, metadata={"dtsweep.schema_version": version}))
    words = f"schema version {version}.*up to {SCHEMA_VERSION}: update dtsweep"
    with pytest.raises(StorageError, match=words):
        Results(tmp_path).attempts()


def test_a_file_of_absurd_width_is_refused(tmp_path: Path) -> None:
    metadata = table_schema("steps").metadata
    wide = pa.table({f"c{index}": [1] for index in range(20_000)}, metadata=metadata)
    sealed(tmp_path, "steps", wide, compression="none")
    commit(Results(tmp_path), 1)
    reader = Results(tmp_path)
    assert reader.table("steps").num_rows == 4
    [(_, reason)] = reader.quarantined
    assert reason.endswith(": Exceeded size limit")


# Storage that fails


NO_SPACE = """
import os, resource, sys
from tests.results.test_store import commit
from dtsweep.errors import StorageError
from dtsweep.results.store import Results

commit(Results(sys.argv[1]), 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    commit(Results(sys.argv[1]), 2)
except StorageError as error:
    print(error)
"""


def test_a_full_disk_is_a_storage_error_and_leaves_nothing_half(tmp_path: Path) -> None:
    process = python_begun(NO_SPACE, tmp_path)
    assert f"can't write results in {tmp_path}" in process.communicate()[0]
    assert process.returncode == 0
    assert list(tmp_path.rglob("*.tmp")) == []
    assert contents(tmp_path) == stored(1)
