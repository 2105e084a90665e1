"""Values of one row of a table, in the columns of results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtsweep.errors import SweepError, quoted
from dtsweep.foreign_tables.contradictions import contradictions, global_batch_of
from dtsweep.foreign_tables.expression import is_null, number_of
from dtsweep.foreign_tables.map_file import RATES, SKIP, TIMES, TOKENS, BoundMap
from dtsweep.foreign_tables.table import Record
from dtsweep.results.schema import BOOL, FLOAT, INT, TRIALS
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.modes import latency_column, mode_in_results, period_of
from dtsweep.sweep.point import DEFAULTS

UNKNOWN_MODE = "unknown"
"""Sync mode of rows whose table does not say it."""

_TYPES = {**{column.name: column.type for column in TRIALS}, TOKENS: FLOAT}

_NUMBER = re.compile(
    r"(0|-?[1-9][0-9]{0,14})"
    r"|-?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?"
    r"|-?[0-9]+[eE][+-][0-9]{1,3}"
    r"|-?[1-9]e[1-9][0-9]?"
)
"""Texts that are a number as a setting: 0012 is a name, and 77e4321 and 5e00 are commits."""


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


def translated(record: Record, table_map: BoundMap, *, workload: str) -> Translated | str:
    """Translate a row, and derive what follows from its numbers.

    Args:
        record: the row.
        table_map: the map for its table.
        workload: name of the workload where the map gives none.

    Returns:
        The row, or why it is left out.

    Raises:
        SweepError: a cell has another type than its column of results.
    """
    try:
        status = _status(record, table_map)
        if status == SKIP:
            return "its status is to be skipped"
        given = {
            name: _converted(value, name, shown=name)
            for name, value in table_map.constants.items()
            if name in _TYPES
        }
        for name, expression in table_map.columns.items():
            value = expression.value_of(record.values)
            given[name] = _converted(value, name, shown=expression.text)
        settings = {
            name: setting_of(expression.value_of(record.values))
            for name, expression in table_map.settings.items()
        }
    except SweepError as error:
        raise SweepError(f"{record.place}: {error}") from error
    if given.get("workers") is None:
        return "its number of workers is empty"
    values: dict[str, Any] = {"sync": UNKNOWN_MODE, "workload": workload}
    values |= {name: value for name, value in given.items() if value is not None}
    values["semantics"] = given.get("semantics") or _semantics(values)
    tokens = values.pop(TOKENS, None)
    if tokens is not None:
        settings.setdefault(TOKENS, _whole(tokens))
    batch = global_batch_of(values)
    if batch is not None:
        values.setdefault("global_batch", batch)
    message = None
    if status == "ok":
        message = contradictions(values, tokens_per_sample=tokens)
        if message is None:
            values |= _derived(values, tokens)
            if not {"samples_per_s", *TIMES} & values.keys():
                return "it has neither a step time nor a rate"
    values["status"] = status
    # Rates and times of results are finite; the contradiction names the number.
    for name in (*RATES, *TIMES, "latency_s"):
        if not math.isfinite(values.get(name) or 0.0):
            del values[name]
    return Translated(place=record.place, values=values, settings=settings, contradiction=message)


def _whole(number: float) -> int | float:
    """A whole number as one, if a column of whole numbers has room for it."""
    if number.is_integer() and abs(number) < 1 << 63:
        return int(number)
    return number


def setting_of(value: Any) -> Any:
    """Value of a setting: a text that is a number as one.

    >>> setting_of("64"), setting_of("0.10"), setting_of("1e-5"), setting_of("1e3"), setting_of("")
    (64, 0.1, 1e-05, 1000.0, None)
    >>> setting_of("0012"), setting_of("77e4321"), setting_of("5e00"), setting_of("1.2.3e5")
    ('0012', '77e4321', '5e00', '1.2.3e5')
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if is_null(text):
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or not math.isfinite(float(text)):
        return text
    return int(text) if match[1] else float(text)


def _status(record: Record, table_map: BoundMap) -> str:
    """Status of a row; `ok` where the map knows no other."""
    column = table_map.status_column
    if column is None:
        return "ok"
    value = str(record.values.get(column))
    if value not in table_map.statuses:
        raise SweepError(
            f"{column} = {quoted(value)} is not in [status] of {table_map.name}; add it to a "
            f"status, as ok = [{quoted(value)}], or to skip"
        )
    return table_map.statuses[value]


def _converted(value: Any, name: str, *, shown: str) -> Any:
    """Value of the type of a column of results, null where it is empty; errors have `shown`."""
    kind = _TYPES[name]
    if kind == BOOL:
        return _truth(value, shown)
    if kind not in (INT, FLOAT):
        if is_null(value):
            return None
        return _word(str(value).strip(), name)
    number = number_of(value, shown)
    if number is None or _is_unknown(number, name):
        return None
    try:
        as_float = float(number)
    except OverflowError:
        raise SweepError(f"{shown} = {quoted(value)} is too large") from None
    if kind == FLOAT:
        return as_float
    if not as_float.is_integer():
        raise SweepError(f"{shown} = {quoted(value)} is not a whole number")
    if not abs(number) < 1 << 63:
        raise SweepError(f"{shown} = {quoted(value)} is too large")
    return int(number)


def _is_unknown(number: float, name: str) -> bool:
    """True for nan, as pandas writes an unknown number, and for a memory of 0.

    A step time or rate of nan is kept, so that the row is flagged. A loss of nan diverged.
    """
    if name == "memory_peak_bytes" and number == 0:
        return True
    is_nan = isinstance(number, float) and math.isnan(number)
    return is_nan and name not in (*TIMES, *RATES, "loss_last")


def _word(text: str, name: str) -> str:
    if name == "semantics" and text not in SEMANTICS:
        raise SweepError(f"semantics = {quoted(text)} is none of {', '.join(SEMANTICS)}")
    return text


def _truth(value: Any, name: str) -> bool | None:
    if isinstance(value, bool):
        return value
    text = "" if value is None else str(value).strip().lower()
    truths = {"true": True, "1": True, "false": False, "0": False, "": None}
    if text not in truths:
        raise SweepError(f"{name} = {quoted(value)} is neither true nor false")
    return truths[text]


def _semantics(values: Mapping[str, Any]) -> str:
    """Semantics of the mode; one worker exchanges nothing, so its updates are exact."""
    if values["sync"] == UNKNOWN_MODE:
        return "exact" if values["workers"] == 1 else "unknown"
    fields = {**DEFAULTS, **values, "workload": None}
    semantics = mode_in_results(values["sync"]).semantics(fields)
    if values.get("compression") is not None:
        return max("lossy", semantics, key=SEMANTICS.index)
    return semantics


def _derived(values: Mapping[str, Any], tokens: float | None) -> dict[str, Any]:
    """Numbers that follow from those that a row has, without those that it has."""
    known = dict(values)
    derived: dict[str, Any] = {}

    def derive(name: str, value: float | None) -> None:
        if value is not None and known.get(name) is None:
            known[name] = derived[name] = value

    batch, mean, median = (
        known.get(name) for name in ("global_batch", "step_mean_s", "step_p50_s")
    )
    rate = known.get("samples_per_s")
    if rate is None and known.get("tokens_per_s") is not None and tokens:
        derive("samples_per_s", known["tokens_per_s"] / tokens)
        rate = known["samples_per_s"]
    step = mean if mean is not None else median
    if batch is not None and step is not None:
        derive("samples_per_s", batch / step)
    if batch is not None and step is None and rate is not None:
        derive("step_mean_s", batch / rate)
    if tokens and known.get("samples_per_s") is not None:
        derive("tokens_per_s", known["samples_per_s"] * tokens)
    latency = known.get(latency_column(values["semantics"], period=period_of(values)))
    if latency is None:
        latency = known.get("step_mean_s", median)
    derive("latency_s", latency)
    return derived
