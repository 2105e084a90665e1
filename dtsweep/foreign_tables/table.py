"""Tables as frames of cells, whose index has the rows' places, such as `runs.csv:17`."""

from __future__ import annotations

import csv
import datetime
import json
import statistics
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import STORED, SweepError, printable, quoted, shortened
from dtsweep.results.local_files import OddFileError, read_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 100_000
"""Most rows of all tables of one import, which are held in memory."""

MOST_BYTES = 1 << 26
"""Most bytes of a table's file, and of the rows that a Parquet file unpacks to."""

_BATCH = 64
"""Rows of a Parquet file that are unpacked at once."""

REPORTS = "result.json"
"""File of a trial of Ray Tune with a line for each report."""

CONFIGURATION = "params.json"
"""File of such a trial with its configuration."""

Rows = Iterator[tuple[str, Mapping[str, Any]]]
"""Place and cells of each row."""


def read_table(table: Path, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read a file, or a folder of Ray Tune.

    Args:
        table: its ending says how it is read.
        reading: `[read]` of the map: `encoding`, and `sep` of CSV.

    Returns:
        Cells as they stand, those of CSV as text; None where a row has no such column.

    Raises:
        SweepError: it can't be read, is too large, or has no rows.
    """
    import pandas as pd

    readers = {".csv": _csv, ".parquet": _parquet, **dict.fromkeys(_JSON, _json)}
    if table.name == REPORTS:
        table = table.parent
    if not table.exists():
        raise SweepError(f"table {str(table)!r} does not exist")
    if not table.is_dir() and not table.is_file():
        raise SweepError(f"table {str(table)!r} is not a file, nor a folder of Ray Tune")
    reader = _ray_tune if table.is_dir() else readers.get(table.suffix.lower())
    if reader is None:
        allowed = ", ".join(readers)
        raise SweepError(f"table {str(table)!r} has no known ending; allowed: {allowed}")
    if table.is_file() and table.stat().st_size > MOST_BYTES:
        raise too_large(table)
    places, rows = [], []
    try:
        for place, row in reader(table, reading):
            places.append(place)
            rows.append(row)
            if len(rows) > MOST_ROWS:
                raise too_large(table)
    except (OSError, LookupError, ValueError, RecursionError, csv.Error) as error:
        words = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SweepError(
            f"table {str(table)!r} can't be read: {words.strip()}; [read] of the map may give "
            "`sep` and `encoding`"
        ) from error
    if not rows:
        raise SweepError(f"table {str(table)!r} has no rows")
    columns = dict.fromkeys(name for row in rows for name in row)
    cells = {name: [row.get(name) for row in rows] for name in columns}
    return pd.DataFrame(cells, index=places, dtype=object)


_JSON = (".json", ".jsonl", ".ndjson")


def too_large(table: Path) -> SweepError:
    """Error about a table that does not fit into memory."""
    return SweepError(
        f"table {str(table)!r} has more than {MOST_ROWS:,} rows or {MOST_BYTES >> 20} MiB; split "
        "it into files of different names, and import one after the other"
    )


def _csv(file: Path, reading: Mapping[str, str]) -> Rows:
    encoding, sep = reading.get("encoding", "utf-8-sig"), reading.get("sep", ",")
    with file.open(encoding=encoding, newline="") as text:
        # pandas would fill a row that lacks a cell, and its lines would be numbers of rows.
        lines = csv.reader(text, delimiter=sep, strict=True)
        names = next(lines, [])
        if len(names) == 1 and any(sign in names[0] for sign in ";\t|"):
            raise SweepError(f'{file.name} has one column {quoted(names[0])}; add [read] sep = ";"')
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SweepError(f"table {str(file)!r} has column {quoted(twice)} twice; rename one")
        for cells in lines:
            place = f"{file.name}:{lines.line_num}"
            if cells and len(cells) != len(names):
                raise SweepError(
                    f"{place} has {len(cells)} cells, and the header {len(names)}; [read] sep of "
                    "the map says by what they are separated"
                )
            if any(cells):
                yield place, dict(zip(names, cells, strict=True))


def _json(file: Path, reading: Mapping[str, str]) -> Rows:
    """Read an object in each line; or one, or a list of them, over many lines."""
    text = file.read_text(reading.get("encoding", "utf-8-sig"))
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        objects = [_object(line, f"{file.name}:{number}") for number, line in lines]
    else:
        objects = content if isinstance(content, list) else [content]
        lines = lines[:1] if objects == [content] else [*enumerate(objects, 1)]
    for (number, _), row in zip(lines, objects, strict=True):
        if not isinstance(row, dict):
            raise SweepError(f'{file.name}:{number} is {quoted(row)}, not an object: {{"a": 1}}')
        yield f"{file.name}:{number}", flat(row)


def _object(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise SweepError(
            f"{place} is not JSON: {error.msg}; write an object in each line"
        ) from None


def _parquet(file: Path, _: Mapping[str, str]) -> Rows:
    import pyarrow.parquet as pq

    number = unpacked = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(_BATCH):
            unpacked += batch.nbytes
            if unpacked > MOST_BYTES:
                raise too_large(file)
            for row in batch.to_pylist():
                number += 1
                yield f"{file.name}: row {number}", flat(row)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Cells of nested objects by their path; lists are JSON.

    >>> flat({"config": {"lr": 0.1, "sizes": [1, 2]}})
    {'config/lr': 0.1, 'config/sizes': '[1, 2]'}
    """
    cells: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            cells |= flat(value, f"{prefix}{name}/")
        else:
            cells[f"{prefix}{name}"] = _cell(value)
    return cells


def _cell(value: Any) -> Any:
    """Cell as null, text, number, true or false; an integer beyond 64 bits is text."""
    plain = value
    match value:
        case Decimal():
            plain = float(value)
        case bytes():
            plain = value.decode("utf-8", "backslashreplace")
        case datetime.date() | datetime.time():
            plain = value.isoformat()
        case list():
            plain = json.dumps(value, default=_cell)
        case int() if not abs(value) < 1 << 63:
            plain = str(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    return str(plain).encode("utf-8", "backslashreplace").decode()


def _ray_tune(folder: Path, _: Mapping[str, str]) -> Rows:
    """Read the trials of an experiment, or the one of a trial's own folder.

    A row has the columns of the last report, `config/NAME` for each value of the configuration, and
    `mean_iteration_s`, `median_iteration_s`, `iterations`: the time from one report to the next,
    without that to the first one, which has the trial's start in it. `status` is ERROR where the
    trial left `error.txt`, whose last line is `error`, NO_REPORT where it never reported, else
    REPORTED.
    """
    is_trial = (folder / CONFIGURATION).is_file()
    trials = [folder] if is_trial else sorted(file.parent for file in folder.glob("*/params.json"))
    if not trials:
        raise SweepError(
            f"folder {str(folder)!r} is not an experiment of Ray Tune: none of its folders has "
            "params.json; give the folder <storage_path>/<name>, or a table's file"
        )
    for trial in trials:
        yield trial.name, _trial(trial)


def _trial(folder: Path) -> dict[str, Any]:
    def text_of(name: str) -> str:
        try:
            return read_file(str(folder / name), most_bytes=MOST_BYTES).decode()
        except FileNotFoundError:
            return ""
        except OddFileError as error:
            raise SweepError(
                f"{folder.name}/{name}: {error}; leave the folder of this trial out"
            ) from None

    configuration = _object(text_of(CONFIGURATION), f"{folder.name}/params.json")
    reports = text_of(REPORTS)
    # A trial that was killed while it wrote its last report has left a part of it.
    lines = reports[: reports.rfind("\n") + 1].splitlines()
    last: dict[str, Any] = {}
    seconds = []
    for number, line in enumerate(lines, start=1):
        last = _object(line, f"{folder.name}/result.json:{number}")
        if isinstance(second := last.get("time_this_iter_s"), int | float):
            seconds.append(second)
    row = {**flat(last), **flat({"config": configuration}), "iterations": len(seconds)}
    if len(seconds) > 1:
        row["mean_iteration_s"] = statistics.fmean(seconds[1:])
        row["median_iteration_s"] = statistics.median(seconds[1:])
    row["status"] = "REPORTED" if last else "NO_REPORT"
    if (folder / "error.txt").is_file():
        row["status"] = "ERROR"
        message = text_of("error.txt").strip().splitlines() or [""]
        row["error"] = shortened(printable(message[-1].strip()), STORED) or None
    return row
