"""Cells of a table by expressions of a map, and numbers in them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.map_file import Map

if TYPE_CHECKING:
    import pandas as pd

_NULLS = frozenset({"", "NA", "N/A", "null", "None"})

_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([^\W\d]\w*)")
_ARITHMETIC = re.compile(r"(?:_\d+_|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[-+*/()\s])+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.ASCII | re.IGNORECASE)
_NUMBER_AS_SETTING = re.compile(
    r"(0|-?[1-9][0-9]{0,14})"
    r"|-?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?"
    r"|-?[0-9]+[eE][+-][0-9]{1,3}"
    r"|-?[1-9]e[1-9][0-9]?"
)
"""Texts that are a number as a setting: 0012 is a name, and 77e4321 and 5e00 are commits."""


def check_column(name: str, frame: pd.DataFrame, *, place: str) -> None:
    """Refuse the name of a column that a table lacks."""
    if name not in frame:
        hint = did_you_mean(name, map(str, frame.columns)) if len(frame.columns) else "it has none"
        raise SweepError(f"{place}: the table has no column {quoted(name)}; {hint}")


def names_in(text: str, frame: pd.DataFrame) -> list[str]:
    """Columns that an expression names."""
    if text in frame:
        return [text]
    return [match[1] or match[2] for match in _NAME.finditer(text)]


def cells_of(
    frame: pd.DataFrame, texts: list[Any], table_map: Map, *, place: str
) -> list[Any] | None:
    """Value of the first expression whose columns the table has, for each row.

    None if it has those of no expression, and the map says that they may be missing.
    """
    present = [text for text in texts if all(name in frame for name in names_in(str(text), frame))]
    if not present and place.split()[1] in table_map.optional:
        return None
    text = str((present or texts)[0])
    names = names_in(text, frame)
    place = f"{table_map.name}: {place}"
    for name in names:
        check_column(name, frame, place=place)
    if names and text in (names[0], f"`{names[0]}`"):
        return list(frame[names[0]])
    return _arithmetic(text, names, frame, table_map.read, place=place)


def _arithmetic(
    text: str, names: list[str], frame: pd.DataFrame, reading: Mapping[str, str], *, place: str
) -> list[Any]:
    """Evaluate arithmetic for each row; None where a column of it is null."""
    import pandas as pd

    numbers: dict[str, list[float | None]] = {}
    for number, name in enumerate(names):
        numbers[f"_{number}_"] = [
            number_of(cell, f"{row}: {name}", reading) for row, cell in frame[name].items()
        ]
    # pandas would take attributes and calls, too, and not all names.
    aliases = iter(numbers)
    formula = _NAME.sub(lambda _: next(aliases), text) if names else text
    message = f"{place}: {quoted(text)} is neither a column nor arithmetic of columns: + - * / and "
    message += "numbers; a name with other characters stands in backticks: `step/ms` / 1000"
    if not _ARITHMETIC.fullmatch(formula) or len(text) > 500:
        raise SweepError(message)
    columns = pd.DataFrame(numbers, index=frame.index, dtype="float64")
    try:
        values = columns.eval(formula, engine="python")
        results = pd.Series(values, index=frame.index, dtype="float64").tolist()
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise SweepError(message) from error
    for column in numbers.values():
        results = [
            old if one is not None else None for old, one in zip(results, column, strict=True)
        ]
    return results


def is_null(cell: Any) -> bool:
    """True for a cell that is empty, or says so."""
    return cell is None or (isinstance(cell, str) and cell.strip() in _NULLS)


def _as_read(cell: str, reading: Mapping[str, str]) -> str:
    """Text of a number with `thousands` left out, and a point for `decimal`."""
    text = (
        cell.strip().replace(reading.get("thousands", ""), "") if "thousands" in reading else cell
    )
    return text.strip().replace(reading.get("decimal", "."), ".")


def number_of(cell: Any, name: str, reading: Mapping[str, str]) -> int | float | None:
    """Number of a cell; null where it is empty.

    >>> number_of("1.200,5", "a", {"thousands": ".", "decimal": ","}), number_of("NA", "a", {})
    (1200.5, None)
    """
    if is_null(cell):
        return None
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return cell
    text = _as_read(str(cell), reading)
    # float() would take 1_0 and the digits of other scripts.
    if not _NUMBER.fullmatch(text):
        hint = ""
        if re.fullmatch(r"[\d.,' ]+", text):
            hint = "; [read] of the map says how numbers are written: thousands and decimal"
        raise SweepError(f"{name} = {quoted(cell)} is not a number{hint}")
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,15}", text) else float(text)


def setting_of(cell: Any, reading: Mapping[str, str]) -> Any:
    """Value of a setting: a text that is a number as one.

    >>> [setting_of(text, {}) for text in ("64", "0.10", "1e-5", "1e3", "0012", "77e4321", "")]
    [64, 0.1, 1e-05, 1000.0, '0012', '77e4321', None]
    """
    if is_null(cell) or not isinstance(cell, str):
        return cell if not is_null(cell) else None
    text = _as_read(cell, reading)
    match = _NUMBER_AS_SETTING.fullmatch(text)
    if match is None or not math.isfinite(float(text)):
        return cell.strip()
    return int(text) if match[1] else float(text)
