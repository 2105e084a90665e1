"""Maps of tables, in TOML: the expression or constant that each column of results comes from."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.results.statuses import STATUSES
from dtsweep.sweep.point import AXES

TIMES = ("step_mean_s", "step_p50_s", "step_p90_s", "step_p95_s", "step_p99_s", "step_max_s")
RATES = ("samples_per_s", "tokens_per_s")
SHARES = ("comm_share", "mfu", "hfu", "device_utilization")
TOKENS = "tokens_per_sample"
"""Length of a sample, stored as a setting: the one between the two rates."""

ALLOWED = (
    *(*AXES, *TIMES, *RATES, *SHARES, TOKENS, "repeat", "reason"),
    *("workload", "devices", "backend", "hosts", "semantics", "parameters", "flops_per_sample"),
    *("global_batch", "data_parallel", "model_parallel", "cpus_per_worker", "gpus_per_worker"),
    *("pass_s", "exchange_isolated_s", "memory_peak_bytes", "bytes_sent_per_step", "power_w"),
    *("energy_j_per_sample", "usd_per_hour", "loss_last"),
)
"""Columns of results that a table can give."""

READY = Path(__file__).with_name("maps")
"""Folder of the ready maps."""

SKIP = "skip"
"""Key of `[status]` for rows that are left out."""

_PARTS: Mapping[str, tuple[Collection[str] | None, tuple[type, ...], str]] = {
    "read": (("sep", "decimal", "thousands", "encoding"), (str,), "a text"),
    "columns": (ALLOWED, (str, list), "a column, arithmetic, or a list of them"),
    "settings": (None, (str, list), "a column, arithmetic, or a list of them"),
    "constants": ((*ALLOWED, "source"), (str, int, float), "a text, a number, true or false"),
    "status": (("column", SKIP, *sorted(STATUSES)), (str, list), 'a list, as ["done"]'),
}
"""Names in each part of a map, all if None; types of their values, and these in words."""

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

    read: Mapping[str, str]
    columns: Mapping[str, str | list[str]]
    """Expression by column of results; of a list the first one whose columns a table has."""

    settings: Mapping[str, str | list[str]]
    """Likewise, by setting of the table's own, stored as `workload_<name>`."""

    constants: Mapping[str, str | int | float]
    status: Mapping[str, str | list[str]]
    repeats: list[str]
    """Columns in which repeats of a point differ, so that `"*"` makes no settings of them."""

    def with_constants(self, given: Iterable[str]) -> Map:
        """Copy of the map with further constants, each as NAME=VALUE.

        Raises:
            SweepError: one of them is not known.
        """
        pairs = [setting.partition("=") for setting in given]
        constants = {name: value for name, _, value in pairs}
        for name, value in constants.items():
            if not value:
                raise SweepError(f"--set {quoted(name)} must be NAME=VALUE, as workload=bert")
        _check("constants", constants)
        columns = {name: text for name, text in self.columns.items() if name not in constants}
        return replace(self, constants={**self.constants, **constants}, columns=columns)


def read_map(given: str) -> Map:
    """Read a map: a file, or a ready map by its name.

    Raises:
        SweepError: it can't be read, or something in it is not known.
    """
    file = READY / f"{given}.toml"
    if not file.is_file():
        file = Path(given)
    try:
        content = tomllib.loads(file.read_text("utf-8"))
        for key, part in content.items():
            _check(key, part)
    except OSError as error:
        raise SweepError(
            f"map {given!r} can't be read: {error.strerror}; ready: ray-tune"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SweepError(f"map {given!r} is not TOML: {error}") from error
    except SweepError as error:
        raise SweepError(f"{given}: {error}") from None
    parts = {key: content.get(key, {}) for key in _PARTS}
    return Map(name=given, repeats=content.get("repeats", []), **parts)


def _check(key: str, part: Any) -> None:
    """Refuse what is unknown in a part of a map."""
    if key == "repeats" and isinstance(part, list):
        return
    if key not in _PARTS or not isinstance(part, dict):
        hint = did_you_mean(key, [*_PARTS, "repeats"])
        raise SweepError(f"{key} is no table of a map, as [columns], or list of repeats; {hint}")
    names, types, words = _PARTS[key]
    for name, value in part.items():
        if names is not None and name not in names:
            hint = did_you_mean(name, names)
            raise SweepError(f"[{key}] {name}: a table can't give it; {hint}, or [settings]")
        if not isinstance(value, types):
            raise SweepError(f"[{key}] {name} = {quoted(value)} must be {words}")


def draft(columns: Iterable[str]) -> str:
    """Draft a map of a table: usual names are mapped, and all others are settings."""
    mapped: dict[str, str] = {}
    settings: dict[str, str] = {}
    for column in columns:
        word = column.lower().replace("/", "_per_").replace(" ", "_").replace("-", "_")
        names = [name for name, words in _DRAFTED.items() if word in words.split()]
        name, *unit = [*names, *({word} & {*ALLOWED}), ""][0].split() or [""]
        if not name or name in mapped:
            settings[column] = column
        elif unit:
            mapped[name] = f"`{column}` / 1000"
        else:
            mapped[name] = column
    lines = ["# Draft. Columns of results are in docs/columns.md; delete settings that are none."]
    for title, part in (("columns", mapped), ("settings", settings)):
        lines.append(f"[{title}]")
        lines += [f"{json.dumps(name)} = {json.dumps(text)}" for name, text in part.items()]
    lines += ["[constants]", 'sync = "ddp"']
    if "accumulation" not in mapped:
        lines.append("accumulation = 1")
    return "\n".join(lines)
