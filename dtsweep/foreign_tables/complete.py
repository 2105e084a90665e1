"""Completion of rows by what follows from their numbers, and contradictions among these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dtsweep.metrics.plausible import contradictions
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.modes import latency_column, mode_in_results, period_of
from dtsweep.sweep.point_axes import AXES, DEFAULTS

TIMES = (
    "step_mean_s",
    "step_p50_s",
    "step_p90_s",
    "step_p95_s",
    "step_p99_s",
    "step_max_s",
)
RATES = ("samples_per_s", "tokens_per_s")
_GROUPS = ("data_parallel", "model_parallel")
SHARES = (
    "comm_share",
    "mfu",
    "hfu",
    "device_utilization",
)

_BOUNDS: Mapping[str, tuple[float, float]] = {
    **{name: (axis.least, math.inf) for name, axis in AXES.items() if axis.least is not None},
    **dict.fromkeys(("hosts", "global_batch", *_GROUPS), (1, math.inf)),
    **dict.fromkeys((*TIMES, *RATES), (1e-9, math.inf)),
    **dict.fromkeys(SHARES, (0, 1)),
}
"""Least and largest plausible values, by column."""

_ROUNDING = 0.05
"""Largest difference between numbers that should be equal, as a share: tables round."""


def completed(row: dict[str, Any]) -> str | None:
    """Add to a row without nulls what follows from its numbers, and `implausible` if they differ.

    Returns:
        Why the row is left out, or None.
    """
    if "workers" not in row:
        return "workers are unknown: the table needs a column workers"
    if not {*TIMES, *RATES} & row.keys():
        return "it has neither a step time nor a rate"
    row.setdefault("sync", "unknown")
    row.setdefault("semantics", _semantics(row))
    if row["semantics"] not in SEMANTICS:
        return f"semantics {row['semantics']} is none of {', '.join(SEMANTICS)}"
    bounds = {name: _BOUNDS[name] for name in row if name in _BOUNDS}
    wrong = [
        f"{name} is {row[name]}"
        for name, (least, most) in bounds.items()
        if not least <= row[name] <= most
    ]
    if not wrong:
        wrong = [*_derive(row), *contradictions(row, rounding=_ROUNDING)]
    if wrong:
        row["implausible"] = "; ".join(wrong)
    return None


def _semantics(row: Mapping[str, Any]) -> str:
    """Semantics of the mode; one worker exchanges nothing, so its updates are exact."""
    semantics = mode_in_results(row["sync"]).semantics({**DEFAULTS, **row, "workload": None})
    if semantics == "unknown" and row["workers"] == 1:
        return "exact"
    if "compression" in row:
        return max("lossy", semantics, key=SEMANTICS.index)
    return semantics


def _derive(row: dict[str, Any]) -> Iterable[str]:
    """Add numbers that follow from those of a row, or say that a product is another one."""
    given = [name for name in _GROUPS if name in row]
    parts = math.prod(row[name] for name in given)
    if row["workers"] % parts or (len(given) == 2 and row["workers"] != parts):
        yield f"{' × '.join(given)} is {parts}, of {row['workers']} workers"
        return
    if "micro_batch" in row and "accumulation" in row and row["semantics"] != "stale":
        groups = row.get("data_parallel", row["workers"] // parts)
        product = groups * row["micro_batch"] * row["accumulation"]
        batch = row.setdefault("global_batch", product)
        if batch != product:
            yield f"global_batch is {batch}, and groups × micro_batch × accumulation {product}"
    batch = row.get("global_batch")
    step_s = row.get("step_mean_s", row.get("step_p50_s"))
    if batch and step_s:
        row.setdefault("samples_per_s", batch / step_s)
    elif batch and "samples_per_s" in row:
        row["step_mean_s"] = step_s = batch / row["samples_per_s"]
    latency = row.get(latency_column(row["semantics"], period=period_of(row)), step_s)
    if latency:
        row.setdefault("latency_s", latency)
