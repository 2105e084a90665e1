"""Frames of made-up trials, with the columns and types of `dtsweep.load`."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dtsweep.results.schema import FLOAT, INT, TRIALS
from dtsweep.sweep.modes import latency_column, mode_in_results, period_of


def trials(*rows: dict[str, Any], **common: Any) -> pd.DataFrame:
    """One `ok` trial per row, every point its own unless `point_id` says otherwise.

    What is not given is null.
    """
    columns = {column.name: column.type for column in TRIALS}
    filled = [
        _with_errors(_with_latency(_with_grid(_defaults(number) | common | row)))
        for number, row in enumerate(rows)
    ]
    extra = [name for row in filled for name in row if name not in columns]
    frame = pd.DataFrame(filled, columns=list(dict.fromkeys([*columns, *extra])))
    types = {INT: "Int64", FLOAT: "float64"}
    # In one piece, as `load` gives it: pandas warns of a hundred columns in memory of their own.
    return frame.astype(
        {name: types[kind] for name, kind in columns.items() if kind in types}
    ).copy()


def _with_grid(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the grid of workers that have a model each, where its mode reads it."""
    names = ("tensor_parallel", "sequence_parallel", "pipeline_parallel")
    reads = mode_in_results(row["sync"]).reads
    return {name: reads[name] for name in names if name in reads} | row


def _with_latency(row: dict[str, Any]) -> dict[str, Any]:
    """The row with `latency_s` and its interval, by its semantics."""
    column = latency_column(row["semantics"], period=period_of(row))
    ends = ("", "_low", "_high", "_error")
    return {
        f"latency_s{end}": row[f"{column}{end}"] for end in ends if f"{column}{end}" in row
    } | row


def _with_errors(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the standard error of each interval, as a normal distribution has it."""
    errors = {
        f"{name}_error": (row[f"{name}_high"] - row[f"{name}_low"]) / 2 / 1.96
        for name in (column.removesuffix("_low") for column in row if column.endswith("_low"))
        if None not in (row[f"{name}_low"], row.get(f"{name}_high"))
    }
    return errors | row


def _defaults(number: int) -> dict[str, Any]:
    return {
        "trial_id": f"trial{number}",
        "point_id": f"point{number}",
        "repeat": 1,
        "status": "ok",
        "flags": [],
        "workload": "Gpt",
        "semantics": "exact",
        "workers": 1,
        "micro_batch": 4,
        "accumulation": 1,
        "sync": "ddp",
        "optimizer": "sgd",
        "learning_rate": 0.01,
        "precision": "fp32",
        "placement": "pack",
        "environment": "{}",
        "hosts": 1,
        "devices": "Xeon",
        "env_id": "a1b2",
        "workload_layers": 4,
    }
