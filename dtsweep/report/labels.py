"""Labels of points and axes, as people read them in tables and titles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

BATCH_SHAPE = ("workers", "micro_batch", "accumulation")
"""Settings that a table of points gives a column each; a label leaves them out."""


def axis_name(column: str) -> str:
    """Name a column of a setting as a sweep file does.

    >>> axis_name("workload_width"), axis_name("micro_batch")
    ('workload.width', 'micro_batch')
    """
    return column.replace("workload_", "workload.", 1)


def point_label(row: pd.Series[Any], varying: Sequence[str]) -> str:
    """Name the sync mode of a row with its settings, then the other axes that vary: "local_sgd H=8 bf16"."""
    import pandas as pd

    mode = str(row["sync"])
    own = ""
    # Results of another version may have a mode that this one lacks.
    if mode in MODES:
        own = MODES[mode].label({name: row[name] if pd.notna(row[name]) else None for name in MODES[mode].reads})
    others = [c for c in varying if c not in ("sync", *MODE_FIELDS, *BATCH_SHAPE) and pd.notna(row[c])]
    named = [str(row[c]) if c in AXES and AXES[c].choices else f"{axis_name(c)}={row[c]}" for c in others]
    return " ".join(filter(None, [mode, own, *named]))


def trial_label(row: pd.Series[Any], varying: Sequence[str]) -> str:
    """Name a row as `point_label` does, with the batch shape where it varies: "ddp workers=2 micro_batch=4"."""
    return " ".join([point_label(row, varying), *(f"{c}={row[c]}" for c in BATCH_SHAPE if c in varying)])
