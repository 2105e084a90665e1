"""Values that decide how a row is read: what readers may rely on in the rows of others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow.compute as pc

from dtsweep.results.statuses import STATUSES
from dtsweep.sweep.mode_info import SEMANTICS

ROLES = frozenset({"trial", "canary"})

_CLOSED_SETS: Mapping[str, frozenset[str]] = MappingProxyType(
    {"status": STATUSES, "role": ROLES, "semantics": frozenset(SEMANTICS)}
)
"""Columns of trials that hold one of a closed set, or null."""

_FINITE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "trials": (
            *("samples_per_s", "tokens_per_s", "latency_s", "step_mean_s", "step_max_s"),
            *("step_p50_s", "step_p90_s", "step_p95_s", "step_p99_s"),
        ),
        "ranks": ("step_mean_s", "window_s"),
        "steps": ("step_s",),
    }
)
"""Rates and times of each table. Bounds of intervals and losses may be infinite."""


def check_values(rows: Any, table: str) -> None:
    """Refuse rows with values that dtsweep does not write.

    Args:
        rows: Arrow table of some columns of `table`.
        table: name of the table.

    Raises:
        ValueError: a text is not in its closed set, a rate or a time is infinite, or a lone worker
            is a straggler.
    """
    names = {*rows.column_names}
    if table == "trials":
        for name in sorted(_CLOSED_SETS.keys() & names):
            _check_set(rows[name], name)
    for name in _FINITE[table]:
        if name in names and pc.any(pc.is_inf(rows[name])).as_py():
            raise ValueError(f"column {name} has an infinite number")
    if {"straggler", "workers"} <= names:
        # Python compares: Arrow imports pandas to convert a number.
        workers = pc.filter(rows["workers"], pc.is_valid(rows["straggler"]))
        if 1 in pc.unique(workers).to_pylist():
            raise ValueError("column straggler has a value in a row of one worker")


def _check_set(column: Any, name: str) -> None:
    if {*pc.unique(column).to_pylist()} - {None} - _CLOSED_SETS[name]:
        raise ValueError(f"column {name} has a value that is not in its closed set")
