"""Labels of points and axes, as people read them in tables and titles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.point import CHOICES

if TYPE_CHECKING:
    import pandas as pd

BATCH_SHAPE = ("workers", "micro_batch", "accumulation")
"""Settings that a table of points gives a column each; a label leaves them out."""

_SYNC_SYMBOLS = {"sync_period": "H", "staleness": "s", "shards": "shards"}


def axis_name(column: str) -> str:
    """Name a column of a setting as a sweep file does.

    >>> axis_name("workload_width"), axis_name("micro_batch")
    ('workload.width', 'micro_batch')
    """
    return column.replace("workload_", "workload.", 1)


def point_label(row: pd.Series[Any], varying: Sequence[str]) -> str:
    """Name the sync mode of a row with its settings, then the other axes that vary: "local_sgd H=8 bf16"."""
    import pandas as pd

    own = [str(row["sync"])]
    for name, symbol in _SYNC_SYMBOLS.items():
        if pd.notna(row[name]):
            own.append(f"{symbol}={row[name]}")
        elif name == "staleness" and row["sync"] == "parameter_server":
            own.append("s=∞")
    others = [c for c in varying if c not in ("sync", *_SYNC_SYMBOLS, *BATCH_SHAPE) and pd.notna(row[c])]
    return " ".join([*own, *(str(row[c]) if c in CHOICES else f"{axis_name(c)}={row[c]}" for c in others)])
