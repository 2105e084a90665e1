"""Rows of a table, in the columns of results."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.map_file import COUNTS, RATES, SHARES, TIMES, Map
from dtsweep.foreign_tables.table import NUMBER
from dtsweep.metrics.plausible import contradictions
from dtsweep.results.schema import FLOAT, TEXT, TRIALS
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.modes import latency_column, mode_in_results, period_of
from dtsweep.sweep.point_axes import AXES, DEFAULTS
from dtsweep.sweep.values import is_storable_name

if TYPE_CHECKING:
    import pandas as pd

_ROUNDING = 0.05
"""Largest difference between numbers that should be equal, as a share: tables round."""

SETTING = "workload_"
"""Prefix of the columns of a table's own settings."""

_TYPES = {column.name: column.type for column in TRIALS}
_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([^\W\d]\w*)")
_ARITHMETIC = re.compile(r"[-+*/().\s0-9eE_]+")


def translated(frame: pd.DataFrame, table_map: Map) -> pd.DataFrame:
    """Translate the rows of `read_table` by a map.

    Returns:
        Columns of results; settings of the table's own are texts.

    Raises:
        SweepError: a column is missing, or a cell has another type than its column of results.
    """
    import pandas as pd

    columns: dict[str, pd.Series] = {}
    for name, text in table_map.columns.items():
        cells = _cells(frame, text, place=f"{table_map.name}: [columns] {name}")
        columns[name] = _converted(cells, name)
    for name, text in table_map.constants.items():
        if name != "source":
            cells = pd.Series(text, index=frame.index, dtype="str", name=name)
            columns[name] = _converted(cells, name)
    for name, text in table_map.settings.items():
        place = f"{table_map.name}: [settings] {name}"
        if not is_storable_name(name):
            raise SweepError(f"{place} can't be the name of a column of results; give it another")
        columns[f"{SETTING}{name}"] = _cells(frame, text, place=place).astype("str")
    return pd.DataFrame(columns, index=frame.index)


def _cells(frame: pd.DataFrame, text: str, *, place: str) -> Any:
    """Texts of a column, or numbers of arithmetic."""
    import pandas as pd

    if text in frame:
        return frame[text]
    names = [match[1] or match[2] for match in _NAME.finditer(text)]
    for name in names:
        if name not in frame:
            hint = did_you_mean(name, frame.columns)
            raise SweepError(f"{place}: the table has no column {quoted(name)}; {hint}")
    if names and text == f"`{names[0]}`":
        return frame[names[0]]
    # pandas would take attributes and calls, too, and not all names.
    numbers = {f"_{index}_": _numbers(frame[name]) for index, name in enumerate(names)}
    aliases = iter(numbers)
    formula = _NAME.sub(lambda _: next(aliases), text)
    if names and _ARITHMETIC.fullmatch(formula):
        with contextlib.suppress(SyntaxError, TypeError, ValueError, AttributeError):
            values: Any = pd.DataFrame(numbers).eval(formula, engine="python")
            return values.rename(text)
    raise SweepError(
        f"{place}: {quoted(text)} is neither a column nor arithmetic of columns: + - * / and "
        "numbers; a name with other characters stands in backticks: `step/ms` / 1000"
    )


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


def _converted(cells: pd.Series, name: str) -> pd.Series:
    """Cells of the type of a column of results."""
    if _TYPES[name] == TEXT:
        return cells
    numbers = _numbers(cells)
    if name == "memory_peak_bytes":
        # A memory in GiB with a fraction is not a whole number of bytes; 0 bytes are unknown.
        numbers = numbers.round().where(numbers != 0)
    if _TYPES[name] == FLOAT:
        return numbers.where(numbers.abs() < math.inf)
    is_whole = numbers.isna() | ((numbers % 1 == 0) & (numbers.abs() < 2**63))
    for place, number in numbers[~is_whole].items():
        raise SweepError(f"{place}: {cells.name} = {number} is not a whole number of 64 bits")
    return numbers.astype("Int64")


def completed(row: dict[str, Any]) -> str | None:
    """Add to a row without nulls what follows from its numbers, and `implausible` if they differ.

    Returns:
        Why the row is left out, or None.
    """
    if "workers" not in row:
        return "workers are unknown: map a column, or add --set workers=1"
    if not {*TIMES, *RATES} & row.keys():
        return "it has neither a step time nor a rate"
    row.setdefault("sync", "unknown")
    row.setdefault("semantics", _semantics(row))
    wrong = [*_out_of_range(row)]
    if not wrong:
        wrong = [*_derive(row), *contradictions(row, rounding=_ROUNDING)]
    if wrong:
        row["implausible"] = "; ".join(wrong)
    return None


def _semantics(row: Mapping[str, Any]) -> str:
    """Semantics of the mode; one worker exchanges nothing, so its updates are exact."""
    semantics = mode_in_results(row["sync"]).semantics({**DEFAULTS, **row, "workload": None})
    if semantics == "unknown" and row["workers"] == 1:
        return "exact"
    if "compression" in row:
        return max("lossy", semantics, key=SEMANTICS.index)
    return semantics


def _out_of_range(row: Mapping[str, Any]) -> Iterable[str]:
    """Shares beyond 1, numbers that are too small to be one, and unknown semantics."""
    for name, value in row.items():
        is_wrong = False
        if name in SHARES:
            is_wrong = not 0 <= value <= 1
        elif name in TIMES or name in RATES:
            is_wrong = value <= 0
        elif name in AXES and AXES[name].least is not None:
            is_wrong = value < AXES[name].least
        elif name in COUNTS:
            is_wrong = value < 1
        elif name == "semantics":
            is_wrong = value not in SEMANTICS
        if is_wrong:
            yield f"{name} is {value}"


def _derive(row: dict[str, Any]) -> Iterable[str]:
    """Add numbers that follow from those of a row, or say that a product is another one."""
    given = [name for name in ("data_parallel", "model_parallel") if name in row]
    parts = math.prod(row[name] for name in given)
    if row["workers"] % parts or (len(given) == 2 and row["workers"] != parts):
        yield f"{' × '.join(given)} is {parts}, of {row['workers']} workers"
        return
    if "micro_batch" in row and "accumulation" in row and row["semantics"] != "stale":
        groups = row.get("data_parallel", row["workers"] // parts)
        product = groups * row["micro_batch"] * row["accumulation"]
        batch = row.setdefault("global_batch", product)
        if batch != product:
            yield f"global_batch is {batch}, and groups × micro_batch × accumulation {product}"
    batch = row.get("global_batch")
    step_s = row.get("step_mean_s", row.get("step_p50_s"))
    if batch and step_s:
        row.setdefault("samples_per_s", batch / step_s)
    elif batch and "samples_per_s" in row:
        row["step_mean_s"] = step_s = batch / row["samples_per_s"]
    latency = row.get(latency_column(row["semantics"], period=period_of(row)), step_s)
    if latency:
        row.setdefault("latency_s", latency)
