"""Rows of a table, in the columns of results."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.map_file import RATES, SHARES, SKIP, TIMES, TOKENS, Map
from dtsweep.foreign_tables.table import NUMBER
from dtsweep.metrics.plausible import contradictions
from dtsweep.results.schema import BOOL, FLOAT, INT, TEXT, TRIALS
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.modes import latency_column, mode_in_results, period_of
from dtsweep.sweep.point import AXES, DEFAULTS
from dtsweep.sweep.values import is_storable_name

if TYPE_CHECKING:
    import pandas as pd

UNKNOWN_MODE = "unknown"
"""Sync mode of rows whose table does not say it."""

ROUNDING = 0.05
"""Largest difference between numbers that should be equal, as a share: tables round."""

SETTING = "workload_"
"""Prefix of the columns of a table's own settings."""

_TYPES = {**{column.name: column.type for column in TRIALS}, TOKENS: FLOAT}
_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([^\W\d]\w*)")
_ARITHMETIC = re.compile(r"[-+*/().\s0-9eE_]+")


def translated(frame: pd.DataFrame, table_map: Map) -> pd.DataFrame:
    """Translate a table; of rows that its map skips only the status.

    Args:
        frame: as `read_table` gives it.
        table_map: which columns give which of results.

    Returns:
        Columns of results; settings of the table's own are texts.

    Raises:
        SweepError: a column is missing, or a cell has another type than its column of results.
    """
    import pandas as pd

    columns = {"status": _statuses(frame, table_map)}
    frame = frame.copy()
    frame.loc[columns["status"] == SKIP] = None
    for name, text in table_map.columns.items():
        cells = _cells(frame, text, place=f"{table_map.name}: [columns] {name}")
        if cells is not None:
            columns[name] = _converted(cells, name)
    for name, value in table_map.constants.items():
        if name != "source":
            cells = pd.Series(str(value), index=frame.index, dtype="str", name=name)
            columns[name] = _converted(cells, name)
    if "workers" not in columns:
        raise SweepError(
            f"{table_map.name}: no column of the table gives workers; add --set workers=1 if it is "
            "1 in all rows, or map a column"
        )
    for name, text in _settings(frame, table_map).items():
        place = f"{table_map.name}: [settings] {name}"
        if not is_storable_name(name):
            raise SweepError(f"{place} can't be the name of a column of results; give it another")
        cells = _cells(frame, text, place=place)
        if cells is not None:
            columns.setdefault(f"{SETTING}{name}", cells.astype("str"))
    if TOKENS in columns:
        columns[f"{SETTING}{TOKENS}"] = columns.pop(TOKENS)
    return pd.DataFrame(columns, index=frame.index)


def _statuses(frame: pd.DataFrame, table_map: Map) -> pd.Series[str]:
    """Status of each row; `ok` where the map knows no other."""
    import pandas as pd

    listed = {**table_map.status}
    column = listed.pop("column", None)
    if column is None:
        return pd.Series("ok", index=frame.index)
    words: pd.Series[str] = _cells(frame, str(column), place=f"{table_map.name}: [status] column")
    statuses = words.map({word: status for status, words in listed.items() for word in words})
    for place, word in words[statuses.isna()].items():
        raise SweepError(
            f"{place}: {column} = {quoted(word)} is not in [status] of {table_map.name}; add it to "
            f"a status, as ok = [{quoted(word)}], or to skip"
        )
    return statuses


def _names_in(texts: str | list[str], frame: pd.DataFrame) -> list[str]:
    """Columns that expressions name."""
    if isinstance(texts, list):
        return [name for text in texts for name in _names_in(text, frame)]
    if texts in frame:
        return [texts]
    return [match[1] or match[2] for match in _NAME.finditer(texts)]


def _cells(frame: pd.DataFrame, text: str | list[str], *, place: str) -> Any:
    """Texts of a column, or numbers of arithmetic; None where the table has no column of a list."""
    if isinstance(text, list):
        known = [one for one in text if all(name in frame for name in _names_in(one, frame))]
        return _cells(frame, known[0], place=place) if known else None
    names = _names_in(text, frame)
    for name in names:
        if name not in frame:
            hint = did_you_mean(name, map(str, frame.columns))
            raise SweepError(f"{place}: the table has no column {quoted(name)}; {hint}")
    if names and text in (names[0], f"`{names[0]}`"):
        return frame[names[0]]
    # pandas would take attributes and calls, too, and not all names.
    numbers = {f"_{index}_": _numbers(frame[name]) for index, name in enumerate(names)}
    aliases = iter(numbers)
    formula = _NAME.sub(lambda _: next(aliases), text)
    message = f"{place}: {quoted(text)} is neither a column nor arithmetic of columns: + - * / and "
    message += "numbers; a name with other characters stands in backticks: `step/ms` / 1000"
    if not names or not _ARITHMETIC.fullmatch(formula):
        raise SweepError(message)
    try:
        values: Any = frame.assign(**numbers)[[*numbers]].eval(formula, engine="python")
    except (SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise SweepError(message) from error
    return values.rename(text)


def _numbers(cells: pd.Series) -> pd.Series[float]:
    """Numbers of texts; errors have the name of the column."""
    if cells.dtype == "float64":
        return cells
    for place, cell in cells[~cells.str.fullmatch(NUMBER, na=True)].items():
        raise SweepError(
            f"{place}: {cells.name} = {quoted(cell)} is not a number; [read] of the map may give "
            "how numbers are written: thousands and decimal"
        )
    return cells.astype("float64")


def _settings(frame: pd.DataFrame, table_map: Map) -> dict[str, str | list[str]]:
    """Expressions by setting; those of `"*" = "PREFIX*"` are columns that nothing else reads."""
    settings = {**table_map.settings}
    prefix = str(settings.pop("*", "")).removesuffix("*")
    if prefix:
        texts = [*table_map.columns.values(), *settings.values(), str(table_map.status)]
        read = {name for text in texts for name in _names_in(text, frame)} | {*table_map.repeats}
        for column in frame.columns:
            if column.startswith(prefix) and column not in read:
                name = column.removeprefix(prefix).replace("/", ".")
                settings.setdefault(name, f"`{column}`")
    return settings


def _converted(cells: pd.Series, name: str) -> pd.Series:
    """Cells of the type of a column of results."""
    kind = _TYPES[name]
    if kind in (INT, FLOAT):
        numbers = _numbers(cells)
        if name == "memory_peak_bytes":
            # Of a memory in GiB with a fraction, bytes are no whole number; none is unknown.
            numbers = numbers.round().where(numbers != 0)
        if kind == FLOAT:
            return numbers.where(numbers.abs() < math.inf)
        is_whole = numbers.isna() | ((numbers % 1 == 0) & (numbers.abs() < 2**63))
        for place, number in numbers[~is_whole].items():
            raise SweepError(f"{place}: {cells.name} = {number} is not a whole number of 64 bits")
        return numbers.astype("Int64")
    if kind == TEXT and name != "semantics":
        return cells
    allowed = {BOOL: ("true", "false"), TEXT: SEMANTICS}[kind]
    words = cells.str.lower()
    for place, cell in cells[~(words.isna() | words.isin(allowed))].items():
        hint = did_you_mean(str(cell), allowed)
        raise SweepError(f"{place}: {name} = {quoted(cell)} is not {' or '.join(allowed)}; {hint}")
    if kind == BOOL:
        return words.map({"true": True, "false": False})
    return words


def completed(row: dict[str, Any]) -> str | None:
    """Add to a row without nulls what follows from its numbers, and `implausible` if they differ.

    Returns:
        Why the row is left out, or None.
    """
    if row["status"] == SKIP:
        return "its status is to be skipped"
    if "workers" not in row:
        return "its number of workers is empty"
    row.setdefault("sync", UNKNOWN_MODE)
    row.setdefault("semantics", _semantics(row))
    if row["status"] != "ok":
        return None
    if not {*TIMES, *RATES} & row.keys():
        return "it has neither a step time nor a rate"
    wrong = [*_out_of_range(row)]
    if not wrong:
        wrong = [*_derive(row), *contradictions(row, rounding=ROUNDING)]
    if wrong:
        row["implausible"] = "; ".join(wrong)
    return None


def _semantics(row: Mapping[str, Any]) -> str:
    """Semantics of the mode; one worker exchanges nothing, so its updates are exact."""
    if row["sync"] == UNKNOWN_MODE:
        return "exact" if row["workers"] == 1 else "unknown"
    semantics = mode_in_results(row["sync"]).semantics({**DEFAULTS, **row, "workload": None})
    if "compression" in row:
        return max("lossy", semantics, key=SEMANTICS.index)
    return semantics


def _out_of_range(row: Mapping[str, Any]) -> Iterable[str]:
    """Shares beyond 1, and numbers that are too small to be one."""
    for name in row.keys() & {*AXES, *SHARES, *TIMES, *RATES, f"{SETTING}{TOKENS}"}:
        value = row[name]
        if name in SHARES:
            is_wrong = not 0 <= value <= 1
        elif name in AXES:
            is_wrong = AXES[name].least is not None and value < AXES[name].least
        else:
            is_wrong = value <= 0
        if is_wrong:
            yield f"{name} is {value:.4g}"


def _derive(row: dict[str, Any]) -> Iterable[str]:
    """Add numbers that follow from those of a row, or say that a product is another one."""
    if "micro_batch" in row and "accumulation" in row and row["semantics"] != "stale":
        groups = row.get("data_parallel", row["workers"] // row.get("model_parallel", 1))
        product = groups * row["micro_batch"] * row["accumulation"]
        if row.setdefault("global_batch", product) != product:
            yield (
                f"global_batch is {row['global_batch']}, and workers × micro_batch × accumulation "
                f"{product}"
            )
    batch, tokens = row.get("global_batch"), row.get(f"{SETTING}{TOKENS}")
    step_s = row.get("step_mean_s", row.get("step_p50_s"))
    if tokens and "tokens_per_s" in row:
        row.setdefault("samples_per_s", row["tokens_per_s"] / tokens)
    elif batch and step_s:
        row.setdefault("samples_per_s", batch / step_s)
    rate = row.get("samples_per_s")
    if batch and rate and step_s is None:
        row["step_mean_s"] = step_s = batch / rate
    if tokens and rate:
        row.setdefault("tokens_per_s", rate * tokens)
    name = latency_column(row["semantics"], period=period_of(row))
    latency = row.get(name, step_s)
    if latency:
        row.setdefault("latency_s", latency)
