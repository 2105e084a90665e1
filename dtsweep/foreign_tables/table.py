"""Tables as frames of texts, whose index has the rows' places, such as `runs.csv:17`."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.errors import SweepError
from dtsweep.results.local_files import OddFileError, read_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 10_000
"""Most rows of one import, which are held in memory."""

_MOST_BYTES = 1 << 26

NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Texts that are a number. float() would take 1_0 and the digits of other scripts."""

_UNKNOWN = ("", "NA", "N/A", "NaT", "null", "None")
_NOT_FINITE = ("nan", "NaN", "inf", "Infinity", "-inf", "-Infinity")


def read_table(table: Path, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read a file by its ending and `[read]` of the map.

    Returns:
        Cells as text, null where they are unknown or a row has no such column.

    Raises:
        SweepError: it can't be read, is too large, or has no rows.
    """
    from pandas.errors import ParserError

    readers = {".csv": _csv, ".json": _json, ".jsonl": _json, ".ndjson": _json}
    reader = readers.get(table.suffix.lower())
    try:
        if reader is None:
            raise ValueError(f"its ending is none of {', '.join(readers)}")
        frame = reader(read_file(str(table.resolve()), most_bytes=_MOST_BYTES), reading)
        if frame.empty:
            raise ValueError("it has no rows")
    except (OddFileError, OSError, LookupError, RecursionError, ValueError) as error:
        hint = ""
        if isinstance(error, ParserError | UnicodeError):
            hint = "; [read] of the map may give `sep` and `encoding`"
        raise SweepError(f"table {str(table)!r} can't be read: {error}{hint}") from error
    frame.index = frame.index.map(lambda number: f"{table.name}:{number}")
    texts = frame.map(lambda cell: str(cell).strip()).astype("str")
    return texts.mask(texts.isin([*_UNKNOWN, *_NOT_FINITE]))


def _csv(data: bytes, reading: Mapping[str, str]) -> pd.DataFrame:
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
        nrows=MOST_ROWS + 2,
    )
    cells.index += 1
    rows = cells.iloc[1:].dropna(how="all")
    rows.columns = pd.Index(cells.iloc[0].astype("str").str.strip())
    if len(rows.columns) == 1 and re.search(r"[;,\t|]", rows.columns[0]):
        raise pd.errors.ParserError(f"it has one column, {rows.columns[0]!r}")
    if not rows.columns.is_unique:
        raise ValueError(f"two columns of {', '.join(rows.columns)} have one name")
    short = rows.index[rows.isna().any(axis=1)]
    if len(short):
        raise ValueError(f"line {short[0]} has fewer cells than the header")
    return rows.apply(_plain_numbers, reading=reading)


def _plain_numbers(cells: pd.Series, reading: Mapping[str, str]) -> pd.Series:
    """Numbers of a column as Python writes them, and all other texts as they are."""
    plain = cells.str.strip()
    decimal, thousands = reading.get("decimal", "."), reading.get("thousands", ".")
    groups = rf"[+-]?[1-9][0-9]{{0,2}}(?:{re.escape(thousands)}[0-9]{{3}})+"
    is_grouped = plain.str.fullmatch(rf"{groups}(?:{re.escape(decimal)}[0-9]+)?")
    if "thousands" in reading:
        plain = plain.mask(is_grouped, plain.str.replace(thousands, "", regex=False))
    elif decimal != "." and is_grouped.any():
        ways = 'give `thousands = "."`, or leave `decimal` out'
        raise ValueError(f"{cells.name} may have points between thousands: {ways}")
    plain = plain.str.replace(decimal, ".", regex=False)
    return plain.where(plain.str.fullmatch(NUMBER), cells)


def _json(data: bytes, reading: Mapping[str, str]) -> pd.DataFrame:
    """Read an object in each line; or one, or a list of them, over many lines.

    A nested value has its path as name: `config/lr`.
    """
    import pandas as pd

    text = data.decode(reading.get("encoding", "utf-8-sig"))
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not isinstance(content, list):
        content = [content]
    if not all(isinstance(row, dict) for row in content):
        raise ValueError('a row is not an object such as {"a": 1}')
    frame = pd.json_normalize(content, sep="/")
    frame.index += 1
    return frame
