"""How a point stands in a table: its settings and its figures, as cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dtsweep.report.text import interval, rate, significant, whole
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

_SYNC_SETTINGS = {"sync_period": "H", "staleness": "s", "shards": "shards"}
_BATCH_SHAPE = {"workers": "workers", "micro_batch": "micro\nbatch", "accumulation": "accumu-\nlation"}


def axis(column: str) -> str:
    """Write a column of a setting as a sweep file does.

    >>> axis("workload_width"), axis("micro_batch")
    ('workload.width', 'micro_batch')
    """
    return column.replace("workload_", "workload.", 1)


def setting(row: pd.Series[Any], varying: list[str]) -> str:
    """Say a row's sync with its settings, then the other axes that vary: "local_sgd H=8 bf16"."""
    import pandas as pd

    own = [str(row["sync"])]
    for name, short in _SYNC_SETTINGS.items():
        if pd.notna(row[name]):
            own.append(f"{short}={row[name]}")
        elif name == "staleness" and row["sync"] == "parameter_server":
            own.append("s=∞")
    others = [c for c in varying if c not in ("sync", *_SYNC_SETTINGS, *_BATCH_SHAPE)]
    named = {c: "" if c in AXES and AXES[c].choices else f"{axis(c)}=" for c in others if pd.notna(row[c])}
    return " ".join([*own, *(f"{name}{row[c]}" for c, name in named.items())])


def batch_cells(rows: pd.DataFrame, *, varying: list[str]) -> dict[str, list[str]]:
    """Headers with their cells, of the axes that vary and shape a batch."""
    return {header: whole(rows[c]) for c, header in _BATCH_SHAPE.items() if c in varying}


def figure_cells(rows: pd.DataFrame, *, varying: list[str]) -> dict[str, list[str]]:
    """Headers with their cells, of what these rows know; the global batch where its parts vary."""
    cells = {}
    if not _BATCH_SHAPE.keys().isdisjoint(varying) and rows["global_batch"].notna().any():
        cells["global\nbatch"] = whole(rows["global_batch"])
    half_ms = (rows["latency_s_high"] - rows["latency_s_low"]) / 2 * 1e3
    cells["step\nms"] = [interval(*pair) for pair in zip(rows["latency_s"] * 1e3, half_ms, strict=True)]
    cells["samples\n/s"] = [rate(value) for value in rows["samples_per_s"]]
    if rows["tokens_per_s"].notna().any():
        cells["tokens\n/s"] = [rate(value) for value in rows["tokens_per_s"]]
    if rows["memory_peak_bytes"].notna().any():
        memory = rows["memory_peak_bytes"].astype("float64")
        unit, size = ("GiB", 2**30) if memory.max() >= 2**30 else ("MiB", 2**20)
        cells[f"memory\n{unit}"] = [significant(value, digits=3) for value in memory / size]
    return cells


def share_cells(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Headers with their cells, of how these rows use the time of a step, where it is known."""
    cells = {}
    if rows["comm_share"].notna().any():
        half = (rows["comm_share_high"] - rows["comm_share_low"]) / 2
        cells["exchange\n%"] = [_percent(*pair) for pair in zip(rows["comm_share"], half, strict=True)]
    if rows["mfu"].notna().any():
        cells["mfu\n%"] = [_percent(value) for value in rows["mfu"]]
    return cells


def _percent(share: float, half: float = math.nan) -> str:
    """Write a share in percent, with half of its interval; unknown is empty."""
    spread = "" if math.isnan(half) else f" ± {half * 100:.1f}"
    return "" if math.isnan(share) else f"{share * 100:.1f}{spread}"
