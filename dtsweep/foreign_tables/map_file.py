"""Maps of tables, in TOML: the expression or constant that each column of results comes from."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.point_axes import AXES

TIMES = ("step_mean_s", "step_p50_s", "step_p90_s", "step_p95_s", "step_p99_s", "step_max_s")
RATES = ("samples_per_s", "tokens_per_s")
SHARES = ("comm_share", "mfu", "hfu", "device_utilization")
COUNTS = ("hosts", "global_batch", "data_parallel", "model_parallel")

_ALLOWED = (
    *(name for name in AXES if name not in ("overlap", "offload")),
    *(*TIMES, *RATES, *SHARES, *COUNTS, "devices", "workload", "semantics", "backend"),
    *("cpus_per_worker", "gpus_per_worker"),
    *("parameters", "flops_per_sample", "pass_s", "exchange_isolated_s", "memory_peak_bytes"),
    *("bytes_sent_per_step", "power_w", "energy_j_per_sample", "usd_per_hour", "loss_last"),
)
"""Columns of results that a table can give: numbers and texts."""

_PARTS: Mapping[str, Collection[str] | None] = {
    "read": ("sep", "decimal", "thousands", "encoding"),
    "columns": _ALLOWED,
    "settings": None,
    "constants": (*_ALLOWED, "source"),
}
"""Names in each part of a map; None if all are allowed."""


@dataclass(frozen=True, kw_only=True)
class Map:
    """A map of tables, checked by `read_map`."""

    name: str
    """File; errors begin with it."""

    read: Mapping[str, str]
    columns: Mapping[str, str]
    """Expression by column of results."""

    settings: Mapping[str, str]
    """Likewise, by setting of the table's own, stored as `workload_<name>`."""

    constants: Mapping[str, str]


def read_map(file: str, constants: Iterable[str] = ()) -> Map:
    """Read a map.

    Args:
        file: in TOML.
        constants: further ones, each as NAME=VALUE.

    Raises:
        SweepError: it can't be read, or something in it is not known.
    """
    try:
        content = tomllib.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SweepError(f"map {file!r} can't be read: {error}") from error
    for key in content:
        if key not in _PARTS or not isinstance(content[key], dict):
            hint = did_you_mean(key, _PARTS)
            raise SweepError(f"{file}: {key} is not a table of a map, such as [columns]; {hint}")
    parts = {key: {**content.get(key, {})} for key in _PARTS}
    for constant in constants:
        name, _, value = constant.partition("=")
        if not value:
            raise SweepError(f"--set {quoted(constant)} must be NAME=VALUE, as workload=bert")
        parts["constants"][name] = value
    for key, part in parts.items():
        allowed = _PARTS[key]
        for name, value in part.items():
            if allowed is not None and name not in allowed:
                hint = did_you_mean(name, allowed)
                raise SweepError(f"{file}: [{key}] {name}: a table can't give it; {hint}")
            if not isinstance(value, str | int | float):
                raise SweepError(f"{file}: [{key}] {name} must be a text or a number")
            part[name] = str(value)
    return Map(name=file, **parts)


def draft(columns: Iterable[str]) -> str:
    """Draft a map of a table: names of columns of results are mapped, all others are settings."""
    parts: dict[str, list[str]] = {"columns": [], "settings": []}
    for column in columns:
        part = "columns" if column in _ALLOWED else "settings"
        parts[part].append(f"{json.dumps(column)} = {json.dumps(column)}")
    lines = [
        '# Draft. Move what is not a setting to [columns]: workers = "gpus"; see docs/import.md.'
    ]
    for title, mapped in parts.items():
        lines += [f"[{title}]", *mapped]
    return "\n".join(lines)
