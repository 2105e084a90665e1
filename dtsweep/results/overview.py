"""The table of trials in brief: how many ended how, what failed, and the last attempts.

It reads few columns, and makes no frame, so that it answers soon on many rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dtsweep.errors import LABEL_SHOWN, one_line, shortened
from dtsweep.results.current_attempt import CHOOSING, current_attempts
from dtsweep.results.statuses import CUT, FINE
from dtsweep.results.store import Results
from dtsweep.sweep.point_axes import AXES, is_left_out

_SHOWN = ("reason", "repeat", "latency_s", "samples_per_s", "cost_usd")
"""Further columns of an attempt that are shown, as far as the results have them."""

_MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """An attempt in one line."""

    trial_id: str
    name: str
    """Its point by the settings that differ between the rows."""

    status: str
    reason: str | None
    started_at: float | None
    """Unix time in seconds."""

    latency_s: float | None
    samples_per_s: float | None
    cost_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Trials that have failed in one way."""

    status: str
    trials: int
    name: str
    """Point of the newest of them."""

    reason: str | None
    """Reason of the newest of them."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Trials of all runs, without canaries."""

    statuses: Mapping[str, int]
    """Trials by the status of the attempt that stands for each."""

    failures: Sequence[Failure]
    """The most frequent first."""

    last: Sequence[AttemptRow]
    """The newest attempts of trials that were not skipped, the oldest of them first."""


def overview_of(store: Results, *, last: int = 5) -> Overview:
    """Read the table of trials.

    Args:
        store: the results.
        last: most attempts to list.
    """
    table = store.trials({*CHOOSING, *_SHOWN, "workload", *AXES})
    table = table.filter(pc.fill_null(pc.not_equal(table["role"], "canary"), fill_value=True))
    rows = table.select(CHOOSING).to_pylist()
    current = sorted(current_attempts(rows).values())
    statuses = Counter(rows[index]["status"] for index in current)
    failed: dict[str, int] = {}
    for index in current:
        failed[rows[index]["status"]] = index  # the newest stays
    newest = {status: failed[status] for status in statuses if status not in FINE | CUT}
    listed = [index for index, row in enumerate(rows) if row["status"] != "skipped"]
    listed = listed[max(0, len(listed) - last) :]
    attempts = _attempts(table, [*listed, *newest.values()])
    failures = [
        Failure(
            status=status,
            trials=statuses[status],
            name=attempts[index].name,
            reason=attempts[index].reason,
        )
        for status, index in newest.items()
    ]
    return Overview(
        statuses=dict(statuses.most_common()),
        failures=sorted(failures, key=lambda failure: -failure.trials),
        last=[attempts[index] for index in listed],
    )


def _attempts(table: Any, indices: Sequence[int]) -> dict[int, AttemptRow]:
    """Some rows by their index."""
    settings = _differing_settings(table)
    variables = _differing_variables(table)
    taken = table.take(pa.array(indices, pa.int64()))
    shown = [name for name in _SHOWN if name in table.column_names]
    wanted = list(dict.fromkeys([*CHOOSING, *shown, *AXES, *settings]))
    rows = taken.select(wanted).to_pylist()
    starts = taken["started_at"].cast(pa.int64()).to_pylist()
    return {
        index: AttemptRow(
            trial_id=row["trial_id"],
            name=_name(row, settings, variables),
            status=row["status"],
            reason=row["reason"],
            started_at=None if start is None else start / _MICROSECONDS,
            latency_s=row["latency_s"],
            samples_per_s=row["samples_per_s"],
            cost_usd=row.get("cost_usd"),
        )
        for index, row, start in zip(indices, rows, starts, strict=True)
    }


def _differing_settings(table: Any) -> dict[str, bool]:
    """Columns of settings that differ between the rows.

    Returns:
        By name, True if several rows have different values: with False, the rows have one value or
        none.
    """
    fields = [name for name in table.column_names if name.startswith("workload_")]
    differing = {}
    for name in ("workload", *AXES, *fields):
        if name not in table.column_names or name == "workload_digest":
            continue
        values = pc.unique(table[name])
        if len(values) > 1:
            differing[name] = len(values.drop_null()) > 1
    return differing


def _differing_variables(table: Any) -> list[str]:
    """Names of the environment variables that differ between the rows."""
    environments = [
        json.loads(text) for text in pc.unique(table["environment"]).to_pylist() if text
    ]
    names = {name for environment in environments for name in environment}
    return [
        name
        for name in sorted(names)
        if any(environment.get(name) != environments[0].get(name) for environment in environments)
    ]


def _name(row: Mapping[str, Any], settings: Mapping[str, bool], variables: Sequence[str]) -> str:
    """Name the point of a row as the progress of a run does, and its repeat after the first.

    Args:
        row: an attempt.
        settings: as `_differing_settings` gives them.
        variables: environment variables that differ.
    """
    parts = []
    for name, has_several in settings.items():
        value = row[name]
        is_quiet = name in AXES and not has_several and is_left_out(name, value)
        if value is not None and not is_quiet:
            parts.append(f"{name.removeprefix('workload_')}={_value(value)}")
    environment = json.loads(row["environment"] or "{}")
    parts += [
        f"env.{name}={_value(environment[name])}" for name in variables if name in environment
    ]
    if not parts:
        parts.append(f"workers={row['workers']}")
    if (row["repeat"] or 1) > 1:
        parts.append(f"repeat {row['repeat']}")
    return " ".join(parts)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return one_line(shortened(str(value), LABEL_SHOWN))
