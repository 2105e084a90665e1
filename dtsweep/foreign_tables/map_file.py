"""Maps of tables, in TOML: the expression or constant that each column of results comes from."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.foreign_tables.expression import Expression, names_in, read_expression
from dtsweep.results.statuses import STATUSES
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.point import AXES
from dtsweep.sweep.values import NAME_LENGTH, is_storable_name

TIMES = ("step_mean_s", "step_p50_s", "step_p90_s", "step_p95_s", "step_p99_s", "step_max_s")
RATES = ("samples_per_s", "tokens_per_s")
SHARES = ("comm_share", "mfu", "hfu", "device_utilization")

MEASURED = (
    *(*TIMES, *RATES, *SHARES, "pass_s", "exchange_isolated_s", "memory_peak_bytes"),
    *("bytes_sent_per_step", "power_w", "energy_j_per_sample", "usd_per_hour", "loss_last"),
)
"""Columns of results that a table may measure."""

FACTS = (
    *("workload", "devices", "backend", "hosts", "semantics", "parameters", "flops_per_sample"),
    *("global_batch", "data_parallel", "model_parallel", "cpus_per_worker", "gpus_per_worker"),
)
"""Columns of results that are neither settings of a point nor measured."""

TOKENS = "tokens_per_sample"
"""Length of a sample: stored as a setting, and tokens_per_s is checked with it."""

ALLOWED = (*AXES, *FACTS, *MEASURED, TOKENS, "repeat", "reason")
"""Names that `[columns]` and `[constants]` of a map may give."""

SOURCE = "source"
"""Constant that names the environment of the rows."""

READY = Path(__file__).with_name("maps")
"""Folder of the ready maps."""

SKIP = "skip"
"""Key of `[status]` for rows that are left out."""

_TABLES = ("columns", "settings", "constants", "status")
_KEYS = ("repeats", "needed", *_TABLES)

Given = str | int | float | tuple[str | int | float, ...]
"""Expression or number; of several the first one holds whose columns the table has, if any."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """A map of tables."""

    name: str
    """File, or name of a ready map; errors begin with it."""

    columns: Mapping[str, Given]
    """By column of results."""

    settings: Mapping[str, Given] = field(default_factory=dict)
    """By setting of the table's own, stored as `workload_<name>`.

    Of `"*" = "config/*"` all columns are settings that begin with `config/` and nothing else reads.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values that hold for all rows, by column of results."""

    repeats: tuple[str, ...] = ()
    """Columns in which repeats of a point differ, so that `"*"` makes no settings of them."""

    needed: tuple[str, ...] = ()
    """Columns of results that a table or the command line has to give."""

    status_column: str | None = None

    statuses: Mapping[str, str] = field(default_factory=dict)
    """Status of results, or `SKIP`, by the value of that column."""

    def with_constants(self, given: Iterable[str]) -> Map:
        """Copy of the map with further constants, each as NAME=VALUE.

        Raises:
            SweepError: one of them is not known.
        """
        constants = {**self.constants}
        columns = {**self.columns}
        for setting in given:
            name, equals, value = setting.partition("=")
            if not equals or not value:
                raise SweepError(f"--set {quoted(setting)} must be NAME=VALUE, as workload=bert")
            _check_constant(name, value, place=f"--set {name}")
            columns.pop(name, None)
            constants[name] = value
        return replace(self, constants=constants, columns=columns)


@dataclass(frozen=True, kw_only=True)
class BoundMap:
    """A map, for the columns of one table."""

    columns: Mapping[str, Expression]
    settings: Mapping[str, Expression]
    constants: Mapping[str, Any]
    status_column: str | None
    statuses: Mapping[str, str]
    name: str


def read_map(given: str) -> Map:
    """Read a map: a file, or a ready map by its name.

    Raises:
        SweepError: it can't be read, or something in it is not known.
    """
    file = Path(given)
    if not file.suffix and not file.exists():
        names = ready_maps()
        if given not in names:
            hint = did_you_mean(given, names)
            raise SweepError(f"map {quoted(given)} is neither a file nor a ready map; {hint}")
        file = READY / f"{given}.toml"
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SweepError(f"map {given!r} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SweepError(f"map {given!r} is not TOML: {error}") from error
    return _map_of(given, content)


def ready_maps() -> list[str]:
    """Names of the ready maps."""
    return sorted(file.stem for file in READY.glob("*.toml"))


def bound(table_map: Map, columns: Collection[str]) -> BoundMap:
    """Read the expressions of a map for the columns of a table.

    Raises:
        SweepError: the table lacks a column.
    """
    expressions: dict[str, Expression] = {}
    for name, given in table_map.columns.items():
        place = f"{table_map.name}: [columns] {name}"
        if (expression := _first(given, columns, place)) is not None:
            expressions[name] = expression
    settings: dict[str, Expression] = {}
    for name, given in table_map.settings.items():
        place = f"{table_map.name}: [settings] {name}"
        if name != "*" and (expression := _first(given, columns, place)) is not None:
            settings[name] = expression
    status_column = table_map.status_column
    if status_column is not None and status_column not in columns:
        raise SweepError(
            f"{table_map.name}: [status] column: the table has no column {quoted(status_column)}; "
            f"{did_you_mean(status_column, columns)}"
        )
    for name in ("workers", *table_map.needed):
        if name not in expressions and name not in table_map.constants:
            raise SweepError(
                f"{table_map.name}: no column of the table gives {name}; add --set {name}=1 if it "
                "is 1 in all rows, or map a column"
            )
    read = {name for one in (*expressions.values(), *settings.values()) for name in one.columns}
    read |= {*table_map.repeats, status_column or ""}
    prefix = _prefix(table_map.settings.get("*"))
    for column in columns:
        if prefix is not None and column.startswith(prefix) and column not in read:
            name = column.removeprefix(prefix).replace("/", ".")
            settings.setdefault(name, read_expression(column, columns))
    _check_names(settings, table_map.name)
    return BoundMap(
        columns=expressions,
        settings=settings,
        constants=table_map.constants,
        status_column=status_column,
        statuses=table_map.statuses,
        name=table_map.name,
    )


def _check_names(settings: Collection[str], name: str) -> None:
    """Refuse a name of a setting that results can't have as a column."""
    for setting in settings:
        if not is_storable_name(setting):
            raise SweepError(
                f"{name}: [settings] {quoted(setting)} can't be the name of a column of results; "
                f'give it another: NAME = "COLUMN", at most {NAME_LENGTH} characters in one line'
            )


def _first(given: Given, columns: Collection[str], place: str) -> Expression | None:
    """Expression that holds for a table; None if it has the columns of none of several."""
    alternatives = given if isinstance(given, tuple) else (given,)
    for alternative in alternatives:
        if not isinstance(alternative, str):
            return Expression(str(alternative), frozenset(), partial(_number, alternative))
        try:
            is_known = alternative in columns or {*names_in(alternative)} <= {*columns}
            if is_known or not isinstance(given, tuple):
                return read_expression(alternative, columns)
        except SweepError as error:
            raise SweepError(f"{place}: {error}") from error
    return None


def _number(value: float, _: Mapping[str, Any]) -> float:
    return value


def _prefix(pattern: Given | None) -> str | None:
    if pattern is None:
        return None
    return str(pattern).removesuffix("*")


def _map_of(name: str, content: Mapping[str, Any]) -> Map:
    """Check the content of a file."""
    for key, value in content.items():
        if key not in _KEYS:
            raise SweepError(f"{name}: no key {quoted(key)}; {did_you_mean(key, _KEYS)}")
        if key in _TABLES and not isinstance(value, dict):
            raise SweepError(f"{name}: {key} must be a table: [{key}] with keys below it")
    columns = {
        key: _given(value, f"{name}: [columns] {key}")
        for key, value in content.get("columns", {}).items()
    }
    constants = content.get("constants", {})
    for key in columns:
        if key not in ALLOWED:
            raise SweepError(f"{name}: [columns] {key}: {_unknown(key)}")
        if key in constants:
            raise SweepError(f"{name}: {key} stands in [columns] and in [constants]; delete one")
    for key, value in constants.items():
        _check_constant(key, value, place=f"{name}: [constants] {key}")
    _check_enough(name, {*columns, *constants})
    column, statuses = _statuses(name, content.get("status", {}))
    return Map(
        name=name,
        columns=columns,
        settings=_settings(name, content.get("settings", {})),
        constants=constants,
        repeats=_repeats(name, content.get("repeats", [])),
        needed=_needed(name, content.get("needed", [])),
        status_column=column,
        statuses=statuses,
    )


def _unknown(key: str) -> str:
    hint = did_you_mean(key, ALLOWED)
    if not hint.endswith("?"):
        hint += "; a setting of the table's own stands in [settings]"
    return f"no column of results that a table can give; {hint}"


def _check_enough(name: str, given: Collection[str]) -> None:
    """Refuse a map that says too little of a row."""
    if "workers" not in given:
        raise SweepError(
            f'{name}: workers is missing; add to [columns]: workers = "<column with the number of '
            'training processes>", or to [constants]: workers = 1'
        )
    if not {*TIMES, *RATES} & {*given}:
        raise SweepError(
            f"{name} maps nothing that was measured; add to [columns] one of "
            f"{', '.join((*TIMES, *RATES))}"
        )


def _given(value: Any, place: str) -> Given:
    values = value if isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise SweepError(
                f"{place} = {quoted(one)} must be a column, arithmetic of columns or a number, or "
                "a list of them, of which the first one holds that the table has"
            )
    if not values:
        raise SweepError(f"{place} is an empty list; give a column, or delete it")
    return tuple(values) if isinstance(value, list) else value


def _check_constant(key: str, value: Any, *, place: str) -> None:
    if key not in (*ALLOWED, SOURCE):
        raise SweepError(f"{place}: {_unknown(key)}")
    if isinstance(value, dict | list):
        raise SweepError(f"{place} = {quoted(value)} must be a text, a number, true or false")
    if key == "semantics" and value not in SEMANTICS:
        raise SweepError(f"{place} = {quoted(value)}: {did_you_mean(str(value), SEMANTICS)}")


def _settings(name: str, table: Mapping[str, Any]) -> dict[str, Given]:
    settings = {}
    for key, value in table.items():
        place = f"{name}: [settings] {key}"
        settings[key] = _given(value, place)
        is_pattern = isinstance(value, str) and value.endswith("*")
        if (key == "*") != is_pattern:
            raise SweepError(
                f'{place} = {quoted(value)}: all columns with a prefix are "*" = "PREFIX*"'
            )
    return settings


def _repeats(name: str, columns: Any) -> tuple[str, ...]:
    if not isinstance(columns, list) or not all(isinstance(one, str) for one in columns):
        raise SweepError(f'{name}: repeats = {quoted(columns)} must be a list, as ["config/seed"]')
    return tuple(columns)


def _needed(name: str, columns: Any) -> tuple[str, ...]:
    if not isinstance(columns, list) or not {*map(str, columns)} <= {*ALLOWED}:
        raise SweepError(
            f"{name}: needed = {quoted(columns)} must be a list of columns of results, as "
            '["accumulation"]'
        )
    return tuple(columns)


def _statuses(name: str, table: Mapping[str, Any]) -> tuple[str | None, dict[str, str]]:
    """Read `[status]`: the column, and the status of results by its value."""
    if not table:
        return None, {}
    if not isinstance(table.get("column"), str):
        raise SweepError(f'{name}: [status] needs column: column = "<the table\'s column>"')
    statuses: dict[str, str] = {}
    for status, values in table.items():
        if status == "column":
            continue
        if status not in (*STATUSES, SKIP):
            hint = did_you_mean(status, [SKIP, *sorted(STATUSES)])
            raise SweepError(f"{name}: [status] {status} is no status; {hint}")
        if not isinstance(values, list):
            raise SweepError(
                f'{name}: [status] {status} = {quoted(values)} must be a list, as ["done"]'
            )
        statuses |= {str(value): status for value in values}
    return table["column"], statuses
