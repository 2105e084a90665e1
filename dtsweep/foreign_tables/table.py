"""Tables as frames of texts, whose index has the rows' places, such as `runs.csv:17`."""

from __future__ import annotations

import io
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import STORED, SweepError, printable, shortened
from dtsweep.results.local_files import OddFileError, read_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 100_000
"""Most rows of one import, which are held in memory."""

MOST_BYTES = 1 << 26
"""Most bytes of a file, and of the rows that a Parquet file unpacks to."""

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Texts that are a number. float() would take 1_0 and the digits of other scripts."""

_UNKNOWN = re.compile(r"|NA|N/A|NaT|null|None|[+-]?(?:nan|NaN|inf|Infinity)")


def read_table(table: Path, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read a file, or a folder of Ray Tune.

    Args:
        table: its ending says how it is read.
        reading: `[read]` of the map.

    Returns:
        Cells as text, null where they are unknown or a row has no such column.

    Raises:
        SweepError: it can't be read, is too large, or has no rows.
    """
    readers = {".csv": _csv, ".parquet": _parquet}
    readers |= dict.fromkeys((".json", ".jsonl", ".ndjson"), _json)
    shown = f"table {str(table)!r}"
    if not table.exists():
        raise SweepError(f"{shown} does not exist")
    reader = readers.get(table.suffix.lower())
    if reader is None and not table.is_dir():
        raise SweepError(f"{shown} has no known ending; allowed: {', '.join(readers)}")
    try:
        if table.is_dir():
            frame = _ray_tune(table)
        elif reader is not None:
            frame = reader(read_file(str(table.resolve()), most_bytes=MOST_BYTES), reading)
            frame.index = frame.index.map(lambda number: f"{table.name}:{number}")
    except RecursionError as error:
        raise SweepError(f"{shown} can't be read: it is nested too deeply") from error
    except (OddFileError, OSError, LookupError, ValueError) as error:
        hint = "[read] of the map may give `sep` and `encoding`"
        raise SweepError(f"{shown} can't be read: {error}; {hint}") from error
    if frame.empty:
        raise SweepError(f"{shown} has no rows")
    return frame.map(_text).astype("str")


def _csv(data: bytes, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read lines of cells; a decimal sign and one of thousands are written as in Python."""
    import pandas as pd

    # Only this engine tells a cell that a row lacks from one that is empty.
    cells = pd.read_csv(
        io.BytesIO(data),
        header=None,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=False,
        sep=reading.get("sep", ","),
        encoding=reading.get("encoding", "utf-8-sig"),
        engine="python",
        on_bad_lines="error",
        nrows=MOST_ROWS + 2,
    )
    cells.index += 1
    names = [str(name) for name in cells.iloc[0]]
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise ValueError(f"it has one column {names[0]!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"two columns of {', '.join(names)} have one name")
    rows = cells.iloc[1:].dropna(how="all")
    for number in rows.index[rows.isna().any(axis=1)]:
        raise ValueError(
            f"line {number} has {rows.loc[number].count()} cells, and the header {len(names)}"
        )
    rows.columns = pd.Index(names)
    if "decimal" in reading or "thousands" in reading:
        return rows.apply(_plain_numbers, reading=reading)
    return rows


def _plain_numbers(cells: pd.Series, reading: Mapping[str, str]) -> pd.Series:
    plain = cells.str.strip()
    if "thousands" in reading:
        plain = plain.str.replace(reading["thousands"], "", regex=False)
    plain = plain.str.replace(reading.get("decimal", "."), ".", regex=False)
    return plain.where(plain.str.fullmatch(NUMBER), cells)


def _json(data: bytes, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read an object in each line; or one, or a list of them, over many lines."""
    text = data.decode(reading.get("encoding", "utf-8-sig"))
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not isinstance(content, list):
        content = [content]
    return _flat(content)


def _parquet(data: bytes, _: Mapping[str, str]) -> pd.DataFrame:
    """Read rows; the footer does not say how large values are that occur in many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[Any] = []
    unpacked = 0
    with pq.ParquetFile(pa.BufferReader(data)) as parquet:
        for batch in parquet.iter_batches(64):
            unpacked += batch.nbytes
            if unpacked > MOST_BYTES:
                raise ValueError(f"its rows have more than {MOST_BYTES >> 20} MiB; split it")
            rows += batch.to_pylist()
    return _flat(rows)


def _flat(objects: list[Any]) -> pd.DataFrame:
    """Frame of objects; a nested value has its path as name: `config/lr`."""
    import pandas as pd

    if not all(isinstance(one, dict) for one in objects):
        raise ValueError('a row is not an object such as {"a": 1}')
    frame = pd.json_normalize(objects, sep="/")
    frame.index += 1
    return frame


def _text(cell: Any) -> str | None:
    """Text of a cell; None where it is unknown."""
    text = str(cell).strip()
    if isinstance(cell, list | dict | bool):
        text = json.dumps(cell, default=str)
    if _UNKNOWN.fullmatch(text):
        return None
    return text


def _ray_tune(folder: Path) -> pd.DataFrame:
    """Read the trials of an experiment, or the one of a trial's own folder."""
    trials = [file.parent for file in [*folder.glob("params.json"), *folder.glob("*/params.json")]]
    if not trials:
        raise ValueError("none of its folders has the params.json of a trial of Ray Tune")
    trials = sorted(trials)
    frame = _flat([_trial(trial) for trial in trials])
    return frame.set_axis([trial.name for trial in trials])


def _trial(folder: Path) -> dict[str, Any]:
    """Last report and configuration of a trial, and how long its reports took.

    The first report is left out of the mean and the median: it has the trial's start in it.
    """

    def text_of(name: str) -> str:
        if not (folder / name).exists():
            return ""
        return read_file(str(folder / name), most_bytes=MOST_BYTES).decode()

    # The rest after the last line's end is of a trial that was killed while it wrote.
    lines = text_of("result.json").split("\n")[:-1]
    reports = [json.loads(line) for line in lines]
    row: dict[str, Any] = {"status": "NO_REPORT"}
    if reports:
        row = {**reports[-1], "status": "REPORTED"}
    row["config"] = json.loads(text_of("params.json"))
    seconds = [one["time_this_iter_s"] for one in reports[1:] if "time_this_iter_s" in one]
    if seconds:
        row["mean_iteration_s"] = statistics.fmean(seconds)
        row["median_iteration_s"] = statistics.median(seconds)
    if (folder / "error.txt").exists():
        row["status"] = "ERROR"
        row["error"] = shortened(printable(text_of("error.txt").strip().split("\n")[-1]), STORED)
    return row
