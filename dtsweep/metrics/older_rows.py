"""Rows of earlier versions in today's definitions, from the steps that were stored with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.exchange import exchange_columns, skew_columns
from dtsweep.metrics.rank_result import Measured, Steps
from dtsweep.metrics.summary import window_columns
from dtsweep.metrics.window_view import view_of
from dtsweep.sweep.modes import latency_column
from dtsweep.sweep.point import AXES, Point

NOT_STEPS = ("samples_per_s", "tokens_per_s")
"""What has meant the same in all versions, and what else was made from it."""


def recomputed(row: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]], steps: Mapping[int, Steps]) -> Row:
    """Compute step times, exchange and skew anew, as they are defined today.

    Args:
        row: of `trials`, measured before `latency_s` was stored; unknown is None.
        ranks: its rows of `ranks`, rank 0 first.
        steps: of each rank, its columns of `steps`.

    Returns:
        The columns that change. Without the steps of all ranks `latency_s` by its old definition, and a flag.
    """
    times = [steps[rank["rank"]][name] for rank in ranks if rank["rank"] in steps for name in ("start_s", "step_s")]
    if len(times) < 2 * row["workers"] or any(_is_null(column).any() for column in times):
        latency = latency_column(row["semantics"])
        kept = {f"latency_s{end}": row[f"{latency}{end}"] for end in ("", "_low", "_high")}
        return {**kept, "flags": [*row["flags"], "older_steps"]}
    point = Point(**{name: row[name] for name in AXES if row.get(name) is not None})
    measured = [_measured(row, rank, steps[rank["rank"]]) for rank in ranks]
    new = window_columns(point, view_of(point, measured))
    new |= exchange_columns(point, measured) | skew_columns(measured, [rank["node"] for rank in ranks])
    return {name: value for name, value in new.items() if name not in NOT_STEPS}


def _measured(row: Mapping[str, Any], rank: Mapping[str, Any], steps: Steps) -> Measured:
    known = {name: values for name, values in steps.items() if not _is_null(values).all()}
    return Measured(
        steps=known,
        window_s=rank["window_s"],
        window_steps=int(np.sum(steps["part"] == "window")),
        skipped_steps=int(np.sum(steps["part"] == "warmup")),
        stop_reason=row["stop_reason"],
        memory_peak_bytes=rank["memory_peak_bytes"],
        exchange_isolated_s=row["exchange_isolated_s"],
    )


def _is_null(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a column of numbers is null; other columns of `steps` never are."""
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
