"""Values of a table's rows, in the columns of results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, quoted
from dtsweep.foreign_tables.cells import (
    cells_of,
    check_column,
    is_null,
    names_in,
    number_of,
    setting_of,
)
from dtsweep.foreign_tables.map_file import MEASURED, RATES, SHARES, SKIP, TIMES, TOKENS, Map
from dtsweep.metrics.plausible import contradictions
from dtsweep.results.schema import BOOL, FLOAT, INT, TRIALS
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

_COUNTS = ("hosts", "global_batch", "parameters", "flops_per_sample")
_MAY_BE_ZERO = ("bytes_sent_per_step", "energy_j_per_sample", "usd_per_hour", *SHARES)
_TYPES = {**{column.name: column.type for column in TRIALS}, TOKENS: FLOAT}


@dataclass(frozen=True, kw_only=True)
class Translated:
    """A row of a table, in the columns of results."""

    place: str
    values: Mapping[str, Any]
    """Columns of results; null is unknown."""

    settings: Mapping[str, Any]
    """Settings of the table's own, by name."""

    contradiction: str | None
    """Numbers that can't all be true, in words; None where all can."""


def translated(
    frame: pd.DataFrame, table_map: Map, *, workload: str
) -> Iterator[tuple[str, Translated | str]]:
    """Translate the rows of a table, and derive what follows from their numbers.

    Args:
        frame: as `read_table` gives it.
        table_map: which columns give which of results.
        workload: name of the workload where the map gives none.

    Yields:
        Place, and the row or why it is left out.

    Raises:
        SweepError: a column is missing, or a cell has another type than its column of results.
    """
    statuses = _statuses(frame, table_map)
    for place in frame.index[statuses == SKIP]:
        yield str(place), "its status is to be skipped"
    frame, statuses = frame[statuses != SKIP], statuses[statuses != SKIP]
    cells = {
        name: cells_of(frame, texts, table_map, place=f"[columns] {name}")
        for name, texts in table_map.columns.items()
    }
    cells |= {
        name: [value] * len(frame) for name, value in table_map.constants.items() if name in _TYPES
    }
    for name in ("workers", *table_map.needed):
        if cells.get(name) is None:
            raise SweepError(
                f"{table_map.name}: no column of the table gives {name}; add --set {name}=1 if it "
                "is 1 in all rows, or map a column"
            )
    shown = {name: str(texts[0]) for name, texts in table_map.columns.items()}
    settings = _settings(frame, table_map)
    for number, place in enumerate(frame.index):
        row = {name: column[number] for name, column in cells.items() if column is not None}
        try:
            values = {
                name: _converted(cell, name, table_map.read, shown=shown.get(name, name))
                for name, cell in row.items()
            }
        except SweepError as error:
            raise SweepError(f"{place}: {error}") from error
        own = {name: setting_of(one[number], table_map.read) for name, one in settings.items()}
        known = {name: value for name, value in values.items() if value is not None}
        row = {"sync": UNKNOWN_MODE, "workload": workload, **known, "status": statuses.iloc[number]}
        yield str(place), _row(str(place), row, own)


def _statuses(frame: pd.DataFrame, table_map: Map) -> pd.Series[str]:
    """Status of each row; `ok` where the map knows no other."""
    import pandas as pd

    column = table_map.status_column
    if column is None:
        return pd.Series("ok", index=frame.index)
    check_column(column, frame, place=f"{table_map.name}: [status] column")
    words = frame[column].map(str)
    for place, word in words[~words.isin([*table_map.statuses])].items():
        raise SweepError(
            f"{place}: {column} = {quoted(word)} is not in [status] of {table_map.name}; add it to "
            f"a status, as ok = [{quoted(word)}], or to skip"
        )
    return words.map(table_map.statuses)


def _settings(frame: pd.DataFrame, table_map: Map) -> dict[str, list[Any]]:
    """Cells by setting; those of `"*" = "PREFIX*"` are columns that nothing else reads."""
    given = {name: texts for name, texts in table_map.settings.items() if name != "*"}
    texts = [*table_map.columns.values(), *given.values()]
    read = {name for listed in texts for text in listed for name in names_in(str(text), frame)}
    read |= {*table_map.repeats, table_map.status_column or ""}
    if pattern := table_map.settings.get("*"):
        prefix = str(pattern[0]).removesuffix("*")
        for column in map(str, frame.columns):
            if column.startswith(prefix) and column not in read:
                given.setdefault(column.removeprefix(prefix).replace("/", "."), [column])
    for name in given:
        if not is_storable_name(name):
            raise SweepError(
                f"{table_map.name}: [settings] {quoted(name)} can't be the name of a column of "
                'results; give it another: NAME = "COLUMN"'
            )
    cells = {
        name: cells_of(frame, texts, table_map, place=f"[settings] {name}")
        for name, texts in given.items()
    }
    return {name: column for name, column in cells.items() if column is not None}


def _converted(cell: Any, name: str, reading: Mapping[str, str], *, shown: str) -> Any:
    """Value of the type of a column of results, null where it is empty; errors have `shown`."""
    kind = _TYPES[name]
    if is_null(cell):
        return None
    if kind in (INT, FLOAT):
        number = number_of(cell, shown, reading)
        # A time or rate of nan is kept, so that the row is flagged. A loss of nan diverged.
        may_be_nan = name in (*TIMES, *RATES, "loss_last")
        if number is None or (math.isnan(number) and not may_be_nan):
            return None
        if name == "memory_peak_bytes" and number == 0:
            return None
        return _typed(number, kind, name, shown)
    text = str(cell).strip()
    truths = {"true": True, "1": True, "false": False, "0": False}
    if kind == BOOL and text.lower() not in truths:
        raise SweepError(f"{shown} = {quoted(cell)} is neither true nor false")
    if name == "semantics" and text not in SEMANTICS:
        raise SweepError(f"semantics = {quoted(cell)} is none of {', '.join(SEMANTICS)}")
    return truths[text.lower()] if kind == BOOL else text


def _typed(number: float, kind: Any, name: str, shown: str) -> int | float:
    try:
        as_float = float(number)
    except OverflowError:
        as_float = math.inf
    if kind == FLOAT and (math.isfinite(as_float) or isinstance(number, float)):
        return as_float
    # Of a memory in GiB with a fraction, bytes are no whole number.
    is_whole = as_float.is_integer() or name == "memory_peak_bytes"
    if not is_whole or not abs(as_float) < 1 << 63:
        raise SweepError(f"{shown} = {number} is not a whole number of 64 bits")
    return round(number)


def _row(place: str, values: dict[str, Any], settings: dict[str, Any]) -> Translated | str:
    """Row with what follows from its numbers, or why it is left out."""
    if "workers" not in values:
        return "its number of workers is empty"
    values.setdefault("semantics", _semantics(values))
    tokens = values.pop(TOKENS, None)
    if tokens is not None:
        settings.setdefault(TOKENS, _whole(tokens))
    product = _global_batch(values)
    if product is not None:
        values.setdefault("global_batch", product)
    message = None
    if values["status"] == "ok":
        wrong = _impossible({**values, TOKENS: tokens}) or _disagreeing(values, product, tokens)
        message = "; ".join(wrong) or None
        if message is None:
            _derive(values, tokens)
            if not {"samples_per_s", *TIMES} & values.keys():
                return "it has neither a step time nor a rate"
    # Rates and times of results are finite; the contradiction names the number.
    for name in (*RATES, *TIMES, "latency_s"):
        if not math.isfinite(values.get(name, 0.0)):
            del values[name]
    return Translated(place=place, values=values, settings=settings, contradiction=message)


def _whole(number: float) -> int | float:
    """A whole number as one, if a column of whole numbers has room for it."""
    if number.is_integer() and abs(number) < 1 << 63:
        return int(number)
    return number


def _semantics(values: Mapping[str, Any]) -> str:
    """Semantics of the mode; one worker exchanges nothing, so its updates are exact."""
    if values["sync"] == UNKNOWN_MODE:
        return "exact" if values["workers"] == 1 else "unknown"
    semantics = mode_in_results(values["sync"]).semantics({**DEFAULTS, **values, "workload": None})
    if values.get("compression") is not None:
        return max("lossy", semantics, key=SEMANTICS.index)
    return semantics


def _global_batch(values: Mapping[str, Any]) -> int | None:
    """Samples of a step over all workers; null where a factor is unknown, and of single pushes."""
    groups = values.get("data_parallel") or values["workers"] // (values.get("model_parallel") or 1)
    micro_batch, passes = values.get("micro_batch"), values.get("accumulation")
    if micro_batch is None or passes is None or values["semantics"] == "stale":
        return None
    samples = int(groups * micro_batch * passes)
    return samples if 0 < samples < 1 << 63 else None


def _impossible(values: Mapping[str, Any]) -> list[str]:
    """Numbers that are impossible by themselves."""
    messages = []
    for name in (*AXES, *_COUNTS, *MEASURED, TOKENS):
        value = values.get(name)
        if value is None or isinstance(value, str | bool) or name == "loss_last":
            continue
        least = AXES[name].least if name in AXES else None
        is_not_above = value <= 0 and name not in (*AXES, *_MAY_BE_ZERO)
        if not math.isfinite(value) or is_not_above or (value < 0 and name in _MAY_BE_ZERO):
            messages.append(f"{name} is {value:g}")
        elif name in SHARES and value > 1:
            messages.append(f"{name} is {value:.4g}, not a share of 0 to 1")
        elif least is not None and value < least:
            messages.append(f"{name} is {value:g}, below {least:g}")
    return messages


def _disagreeing(values: Mapping[str, Any], product: int | None, tokens: float | None) -> list[str]:
    """Numbers that contradict each other."""
    messages = contradictions(values, rounding=ROUNDING)
    batch = values.get("global_batch")
    if None not in (batch, product) and batch != product:
        messages.append(
            f"global_batch is {batch}, and workers × micro_batch × accumulation {product}"
        )
    if tokens is not None and values.get("tokens_per_s") is not None:
        rate = values["tokens_per_s"] / tokens
        of_tokens = contradictions({**values, "samples_per_s": rate}, rounding=ROUNDING)
        messages += [f"with tokens_per_s / {TOKENS}: {one}" for one in of_tokens if not messages]
        known = values.get("samples_per_s", rate)
        if not of_tokens and abs(known - rate) > ROUNDING * max(known, rate):
            messages.append(f"tokens_per_s / {TOKENS} is {rate:.4g}, and samples_per_s {known:.4g}")
    ascending = [name for name in TIMES[1:] if name in values]
    for lower, higher in [*itertools.pairwise(ascending), ("step_mean_s", "step_max_s")]:
        low, high = values.get(lower, 0.0), values.get(higher, math.inf)
        if low > high and (lower != "step_mean_s" or low * (1 - ROUNDING) > high):
            messages.append(f"{lower} is {low:.4g}, above {higher} {high:.4g}")
    return messages


def _derive(values: dict[str, Any], tokens: float | None) -> None:
    """Add numbers that follow from those of a row."""
    batch, median = values.get("global_batch"), values.get("step_p50_s")
    step = values.get("step_mean_s", median)
    derived: dict[str, float] = {}
    if tokens and "tokens_per_s" in values:
        derived["samples_per_s"] = values["tokens_per_s"] / tokens
    elif batch is not None and step is not None:
        derived["samples_per_s"] = batch / step
    rate = values.get("samples_per_s", derived.get("samples_per_s"))
    if batch is not None and step is None and rate is not None:
        derived["step_mean_s"] = batch / rate
    if tokens and rate is not None:
        derived["tokens_per_s"] = rate * tokens
    for name, value in derived.items():
        values.setdefault(name, value)
    mean = values.get("step_mean_s", median)
    latency = values.get(latency_column(values["semantics"], period=period_of(values)), mean)
    if latency is not None:
        values.setdefault("latency_s", latency)
