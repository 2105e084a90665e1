"""Rows of earlier versions in today's definitions, from the steps that were stored with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.flags import JUDGED
from dtsweep.metrics.rank_result import Measured, Steps
from dtsweep.metrics.summary import columns_of_steps
from dtsweep.metrics.window_view import mark_warmup
from dtsweep.sweep.modes import latency_column
from dtsweep.sweep.point import AXES, Point

_BY_RATE = ("tokens_per_s", "mfu", "hfu", "flops_per_s_per_worker")
"""What follows the rate, by what is not stored."""


def recomputed(row: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]], steps: Mapping[int, Steps]) -> Row:
    """Compute anew what is made from steps, as it is defined today.

    Args:
        row: of `trials`, measured before `latency_s` was stored; unknown is None.
        ranks: its rows of `ranks`, rank 0 first.
        steps: of each rank, its columns of `steps`.

    Returns:
        The columns that change. Without all steps of all ranks `latency_s` by its old definition, and a flag.
    """
    flags = [] if row["flags"] is None else list(row["flags"])
    if len(ranks) < row["workers"] or not all(_is_complete(steps.get(rank["rank"])) for rank in ranks):
        latency = latency_column(row["semantics"])
        kept = {f"latency_s{end}": row[f"{latency}{end}"] for end in ("", "_low", "_high")}
        return {**kept, "flags": [*flags, "older_steps"]}
    point = Point(**{name: row[name] for name in AXES if row.get(name) is not None})
    noticed = [flag for flag in flags if flag not in JUDGED]
    measured = [_measured(row, rank, steps[rank["rank"]], flags=noticed) for rank in ranks]
    half_width = json.loads(row["measure"] or "{}").get("half_width")
    nodes = [rank["node"] for rank in ranks]
    new = columns_of_steps(point, mark_warmup(point, measured), nodes=nodes, half_width=half_width)
    faster = new["samples_per_s"] / row["samples_per_s"]
    return new | {name: None if row[name] is None else row[name] * faster for name in _BY_RATE}


def _is_complete(steps: Steps | None) -> bool:
    if steps is None or not (steps["part"] == "window").any():
        return False
    in_turns = np.isin(steps["part"], ("exchange", "no_exchange"))
    return not (_is_null(steps["start_s"]) | _is_null(steps["step_s"]) | _is_null(steps["block"]) & in_turns).any()


def _measured(row: Mapping[str, Any], rank: Mapping[str, Any], steps: Steps, *, flags: Sequence[str]) -> Measured:
    """What the rank sent, the window whole: what was found to be warm-up in it is to be found anew."""
    window = (steps["part"] == "window") | (steps["part"] == "warmup") & (steps["start_s"] >= 0)
    known = {name: values for name, values in steps.items() if not _is_null(values).all()}
    block = np.nan_to_num(steps["block"].astype("float64"), nan=-1).astype("int64")
    return Measured(
        steps={**known, "part": np.where(window, "window", steps["part"]), "block": block},
        window_s=rank["window_s"],
        window_steps=int(window.sum()),
        skipped_steps=int(np.sum((steps["part"] == "warmup") & ~window)),
        stop_reason=row["stop_reason"],
        flags=flags,
        memory_peak_bytes=rank["memory_peak_bytes"],
        exchange_isolated_s=row["exchange_isolated_s"],
    )


def _is_null(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a column of numbers is null; other columns of `steps` never are."""
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), np.bool_)
