"""Maps of tables, in TOML: the expression or constant that each column of results comes from."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.results.statuses import STATUSES
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.point import AXES

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

READY = Path(__file__).with_name("maps")
"""Folder of the ready maps."""

SKIP = "skip"
"""Key of `[status]` for rows that are left out."""

_KEYS = {
    **dict.fromkeys(("repeats", "needed"), list),
    **dict.fromkeys(("read", "columns", "settings", "constants", "status"), dict),
}
_READ = ("sep", "decimal", "thousands", "encoding")

_DRAFTED = {
    "workers": "gpus num_gpus n_gpus num_workers world_size nproc ranks",
    "micro_batch": "batch batch_size local_batch_size per_device_train_batch_size bsz",
    "accumulation": "gradient_accumulation_steps grad_accum",
    "step_mean_s": "step_time step_time_s iteration_time time_per_step",
    "step_mean_s ms": "step_ms step_time_ms iteration_ms time_per_step_ms",
    "samples_per_s": "images_per_s samples_per_second train_samples_per_second throughput",
    "tokens_per_s": "tps tokens_per_second tokens_per_sec",
}
"""Usual names of columns, by the column of results that they give; those of `ms` in ms."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """A map of tables, checked by `read_map`."""

    name: str
    """File, or name of a ready map; errors begin with it."""

    columns: Mapping[str, list[str | float]]
    """Expressions or numbers by column of results; of several the first one that a table has."""

    optional: Collection[str]
    """Columns and settings that a table may lack: those that are a list in the file."""

    settings: Mapping[str, list[str | float]]
    """Likewise, by setting of the table's own, stored as `workload_<name>`."""

    constants: Mapping[str, Any]
    """Values that hold for all rows, by column of results."""

    read: Mapping[str, str] = field(default_factory=dict)
    """`sep`, `decimal`, `thousands` and `encoding` of the files."""

    repeats: Collection[str] = ()
    """Columns in which repeats of a point differ, so that `"*"` makes no settings of them."""

    needed: Collection[str] = ()
    """Columns of results that a table or the command line has to give."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    """Status of results, or `SKIP`, by the value of the column `status_column`."""

    status_column: str | None = None

    def with_constants(self, given: Iterable[str]) -> Map:
        """Copy of the map with further constants, each as NAME=VALUE.

        Raises:
            SweepError: one of them is not known.
        """
        constants, columns = {**self.constants}, {**self.columns}
        for setting in given:
            name, _, value = setting.partition("=")
            if not value:
                raise SweepError(f"--set {quoted(setting)} must be NAME=VALUE, as workload=bert")
            _check_constant(name, value, place=f"--set {name}")
            columns.pop(name, None)
            constants[name] = value
        return replace(self, constants=constants, columns=columns)


def ready_maps() -> list[str]:
    """Names of the ready maps."""
    return sorted(file.stem for file in READY.glob("*.toml"))


def read_map(given: str) -> Map:
    """Read a map: a file, or a ready map by its name.

    Raises:
        SweepError: it can't be read, or something in it is not known.
    """
    file = Path(given)
    if not file.suffix and not file.exists():
        if given not in ready_maps():
            hint = did_you_mean(given, ready_maps())
            raise SweepError(f"map {quoted(given)} is neither a file nor a ready map; {hint}")
        file = READY / f"{given}.toml"
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SweepError(f"map {given!r} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SweepError(f"map {given!r} is not TOML: {error}") from error
    try:
        return _map_of(given, content)
    except SweepError as error:
        raise SweepError(f"{given}: {error}") from None


def _map_of(name: str, content: Mapping[str, Any]) -> Map:
    for key, value in content.items():
        if key not in _KEYS:
            raise SweepError(f"no key {quoted(key)}; {did_you_mean(key, _KEYS)}")
        if not isinstance(value, _KEYS[key]):
            kind = 'a list, as ["config/seed"]' if _KEYS[key] is list else f"a table: [{key}]"
            raise SweepError(f"{key} = {quoted(value)} must be {kind}")
    columns, settings = content.get("columns", {}), content.get("settings", {})
    constants, status = content.get("constants", {}), {**content.get("status", {})}
    _check_columns(columns, constants)
    for key, value in content.get("read", {}).items():
        is_sign = isinstance(value, str) and (key == "encoding" or len(value) == 1)
        if key not in _READ or not is_sign:
            allowed = ", ".join(_READ)
            raise SweepError(f"[read] {key} = {quoted(value)} is no text for one of {allowed}")
    column = status.pop("column", None)
    if status and column is None:
        raise SweepError('[status] needs column = "<the table\'s column>"')
    for key, values in status.items():
        if key not in (*STATUSES, SKIP) or not isinstance(values, list):
            hint = did_you_mean(key, [SKIP, *sorted(STATUSES)])
            raise SweepError(f'[status] {key} is no status with a list such as ["done"]; {hint}')
    of_both = columns | settings
    return Map(
        name=name,
        columns={key: _given(value, f"[columns] {key}") for key, value in columns.items()},
        settings={key: _given(value, f"[settings] {key}") for key, value in settings.items()},
        optional={key for key, value in of_both.items() if isinstance(value, list)},
        constants=constants,
        read=content.get("read", {}),
        repeats=content.get("repeats", []),
        needed=content.get("needed", []),
        statuses={str(value): key for key, values in status.items() for value in values},
        status_column=column,
    )


def _check_columns(columns: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Refuse names that are none of results, and a map that says too little of a row."""
    for key in columns:
        if key not in ALLOWED:
            raise SweepError(f"[columns] {key}: {_unknown(key)}")
        if key in constants:
            raise SweepError(f"{key} stands in [columns] and in [constants]; delete one")
    for key, value in constants.items():
        _check_constant(key, value, place=f"[constants] {key}")
    given = {*columns, *constants}
    if "workers" not in given:
        raise SweepError("workers is missing in [columns]; or add to [constants]: workers = 1")
    if not given & {*TIMES, *RATES}:
        raise SweepError(f"[columns] must give one of {', '.join((*TIMES, *RATES))}")


def _unknown(key: str) -> str:
    hint = did_you_mean(key, ALLOWED)
    if not hint.endswith("?"):
        hint += "; a setting of the table's own stands in [settings]"
    return f"no column of results that a table can give; {hint}"


def _given(value: Any, place: str) -> list[str | float]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(type(one) in (str, int, float) for one in values):
        raise SweepError(f"{place} = {quoted(value)} must be a column, arithmetic, or a list of it")
    if (place == "[settings] *") != str(value).endswith("*"):
        raise SweepError(f'{place}: all columns with a prefix are "*" = "PREFIX*"')
    return values


def _check_constant(key: str, value: Any, *, place: str) -> None:
    if key not in (*ALLOWED, "source"):
        raise SweepError(f"{place}: {_unknown(key)}")
    if isinstance(value, dict | list):
        raise SweepError(f"{place} = {quoted(value)} must be a text, a number, true or false")
    if key == "semantics" and value not in SEMANTICS:
        raise SweepError(f"{place} = {quoted(value)}: {did_you_mean(str(value), SEMANTICS)}")


def draft(columns: Iterable[str]) -> str:
    """Draft a map of a table: usual names are mapped, and all others are settings."""
    import json

    mapped: dict[str, str] = {}
    settings = []
    for column in columns:
        word = column.lower().replace("/", "_per_").replace(" ", "_").replace("-", "_")
        names = [name for name, words in _DRAFTED.items() if word in words.split()]
        if word in ALLOWED:
            names.append(word)
        if not names or names[0].split()[0] in mapped:
            settings.append(f"{json.dumps(column, ensure_ascii=False)} = {json.dumps(column)}")
            continue
        name, *unit = names[0].split()
        mapped[name] = f"`{column}` / 1000" if unit else column
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}" for name, text in mapped.items()]
    return "\n".join(
        [
            "# Draft. Columns of results are in docs/columns.md; delete settings that are none.",
            "[columns]",
            *lines,
            *(f'# {name} = ""' for name in ("workers", "step_mean_s") if name not in mapped),
            "[settings]",
            *settings,
            "[constants]",
            'sync = "ddp"',
            *([] if "accumulation" in mapped else ["accumulation = 1"]),
        ]
    )
