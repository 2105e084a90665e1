"""Rows of a table in a CSV, Parquet or JSON-lines file, each with its place."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from dtsweep.errors import SweepError, quoted

MOST_ROWS = 100_000
"""Most rows of all tables of one import, which are held in memory."""

MOST_TEXT = 1 << 28
"""Most characters in the cells of all tables of one import, and bytes of a Parquet file.

The bytes are those of the file, and those of the rows that it unpacks to.
"""

MOST_CHARACTERS = 1 << 20
"""Longest line of a table."""

_DEEPEST = 100
"""Most levels of nested objects."""

_BATCH = 4096
"""Rows of a Parquet file that are unpacked at once."""


class Record(NamedTuple):
    """A row of a table."""

    place: str
    """File and line, such as `runs.csv:17`; of Parquet the row, of Ray Tune the trial."""

    values: Mapping[str, Any]
    """Cells by column; those of CSV are text."""


def rows_of_file(file: Path) -> Iterator[Record]:
    """Read the rows of a file by its ending.

    Raises:
        SweepError: it can't be read, or its ending is not known.
    """
    readers = {
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
        ".jsonl": _json_rows,
        ".ndjson": _json_rows,
        ".json": _json_rows,
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise SweepError(
            f"table {str(file)!r} has no known ending; allowed: .csv, .parquet, .jsonl, or a "
            "folder of Ray Tune"
        )
    try:
        yield from reader(file)
    except OSError as error:
        raise SweepError(f"table {str(file)!r} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SweepError(f"table {str(file)!r} is not text in UTF-8: {error.reason}") from error


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested objects by their path; lists are JSON.

    >>> flat({"config": {"lr": 0.1, "sizes": [1, 2]}})
    {'config/lr': 0.1, 'config/sizes': '[1, 2]'}
    """
    cells: dict[str, Any] = {}
    for name, value in values.items():
        column = f"{prefix}{plain_cell(name)}"
        if isinstance(value, Mapping):
            if column.count("/") > _DEEPEST:
                raise SweepError(f"{quoted(column)} is nested too deeply")
            cells |= flat(value, f"{column}/")
        else:
            cells[column] = plain_cell(value)
    return cells


def plain_cell(value: Any) -> Any:
    """Cell as null, text, number, true or false.

    Lists are JSON, and times their ISO 8601 text. An integer that 64 bits can't hold is text, as of
    a CSV file. A character that UTF-8 can't hold is written as Python does.

    >>> plain_cell([1, 2]), plain_cell(Decimal("0.10")), plain_cell(2**64)
    ('[1, 2]', 0.1, '18446744073709551616')
    """
    plain = value
    match value:
        case None | bool() | float():
            pass
        case int():
            plain = value if abs(value) < 1 << 63 else str(value)
        case str():
            plain = value.encode("utf-8", "backslashreplace").decode()
        case Decimal():
            plain = float(value)
        case bytes():
            plain = value.decode("utf-8", "backslashreplace")
        case datetime.date() | datetime.time():
            plain = value.isoformat()
        case list():
            plain = plain_cell(json.dumps(value, default=plain_cell))
        case _:
            plain = plain_cell(str(value))
    return plain


def json_object(line: str, place: str) -> dict[str, Any]:
    """Read a line that is a JSON object.

    Raises:
        SweepError: it is not.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        words = "a number in it is too long"
        if isinstance(error, RecursionError):
            words = "it is nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            words = error.msg
        raise SweepError(
            f"{place} is not JSON: {words}; a table has one object in each line"
        ) from None
    if not isinstance(value, dict):
        raise SweepError(
            f"{place} is {quoted(value)}, not an object such as "
            '{"workers": 2, "step_s": 0.1}; a table has one in each line'
        )
    return value


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a text file that are not empty, with their numbers from 1.

    Raises:
        SweepError: a line is longer than `MOST_CHARACTERS`.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        number = 0
        while line := lines.readline(MOST_CHARACTERS + 1):
            number += 1
            if len(line) > MOST_CHARACTERS:
                raise SweepError(
                    f"{file.name}:{number} is longer than {MOST_CHARACTERS:,} characters; is it a "
                    "table?"
                )
            if line.strip():
                yield number, line


def _csv_rows(file: Path) -> Iterator[Record]:
    line_number = 0

    def lines() -> Iterator[str]:
        nonlocal line_number
        for line_number, line in lines_of(file):  # noqa: B007  # read by the caller
            yield line

    reader = csv.reader(lines(), strict=True)
    try:
        names = next(reader, [])
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SweepError(f"table {str(file)!r} has column {quoted(twice)} twice; rename one")
        for cells in reader:
            if len(cells) != len(names):
                raise SweepError(
                    f"{file.name}:{line_number} has {len(cells)} cells, and the header "
                    f"{len(names)}; cells are separated by commas"
                )
            yield Record(f"{file.name}:{line_number}", dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise SweepError(f"{file.name}:{line_number} is not CSV: {error}") from error


def _json_rows(file: Path) -> Iterator[Record]:
    for number, line in lines_of(file):
        place = f"{file.name}:{number}"
        yield Record(place, _flat_row(json_object(line, place), place))


def _flat_row(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    try:
        return flat(values)
    except SweepError as error:
        raise SweepError(f"{place}: {error}") from None


def _parquet_rows(file: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        if file.stat().st_size > MOST_TEXT:
            raise _too_large(file)
        data = file.read_bytes()
        with pq.ParquetFile(pa.BufferReader(data)) as parquet:
            unpacked = 0
            for batch in parquet.iter_batches(_BATCH):
                unpacked += batch.nbytes
                if unpacked > MOST_TEXT:
                    raise _too_large(file)
                for values in batch.to_pylist():
                    number += 1
                    place = f"{file.name}: row {number}"
                    yield Record(place, _flat_row(values, place))
    except (pa.ArrowException, ValueError) as error:
        raise SweepError(f"table {str(file)!r} is not Parquet: {error}") from error


def _too_large(file: Path) -> SweepError:
    return SweepError(
        f"table {str(file)!r} takes more than {MOST_TEXT >> 20} MiB; divide it, or write it as CSV"
    )
