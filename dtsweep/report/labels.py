"""Labels of points and axes, as people read them in tables and titles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import AXES, is_left_out

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


def model_columns(points: pd.DataFrame) -> list[str]:
    """Name the settings of workloads that distinguish models.

    Such a setting has one value in all points of a model, but not in all points. Empty if the
    settings don't distinguish every model from every other one.
    """
    names = [c for c in setting_columns(points) if c == "workload" or c.startswith("workload_")]
    models = points.groupby("model_digest", dropna=False)
    constant = [c for c in names if models[c].nunique(dropna=False).max() == 1]
    telling = [c for c in constant if points[c].nunique(dropna=False) > 1]
    if len(points[telling].drop_duplicates()) != models.ngroups:
        return []
    return telling


def model_label(row: pd.Series[Any], telling: Sequence[str]) -> str:
    """Name the model of a row by the settings of `model_columns`, else by its digest.

    An example is "workload.layers=2".
    """
    digest = row["model_digest"]
    return (
        settings_label(row, telling) or f"model {digest if isinstance(digest, str) else 'unknown'}"
    )


def point_label(row: pd.Series[Any], varying: Sequence[str]) -> str:
    """Name the sync mode of a row with its settings and compression, then other axes that vary.

    An example is "ring int8 bf16".
    """
    import pandas as pd

    mode = str(row["sync"])
    values = {name: row[name] if pd.notna(row[name]) else None for name in MODES[mode].reads}
    own = MODES[mode].label(
        {name: value for name, value in values.items() if not is_left_out(name, value)}
    )
    others = [
        c
        for c in varying
        if c not in ("sync", *MODE_FIELDS, "compression", *COMPRESSION_FIELDS, *BATCH_SHAPE)
    ]
    return " ".join(filter(None, [mode, own, compression_label(row), settings_label(row, others)]))


def compression_label(row: pd.Series[Any]) -> str:
    """Name the compression of a row with its settings; empty if nothing is compressed.

    An example is "topk zstd ratio=0.01".
    """
    import pandas as pd

    compression, coding, ratio, rank = (
        row.get(name) for name in ("compression", *COMPRESSION_FIELDS)
    )
    if pd.isna(compression):
        return ""
    settings = {"": coding, "ratio=": ratio, "rank=": rank}
    known = [
        f"{name}{value:g}" if name else str(value)
        for name, value in settings.items()
        if pd.notna(value)
    ]
    return " ".join([str(compression), *known])


def trial_label(row: pd.Series[Any], varying: Sequence[str]) -> str:
    """Name a row as `point_label` does, with the batch shape where it varies.

    An example is "ddp workers=2 micro_batch=4".
    """
    return " ".join(
        [point_label(row, varying), *(f"{c}={row[c]}" for c in BATCH_SHAPE if c in varying)]
    )


def settings_label(row: pd.Series[Any], columns: Sequence[str]) -> str:
    """Name settings of a row, those that are null left out: "bf16 workload.layers=2"."""
    import pandas as pd

    known = [c for c in columns if pd.notna(row[c])]
    by_value = ("workload", *(name for name, declared in AXES.items() if declared.choices))
    return " ".join(str(row[c]) if c in by_value else f"{axis_name(c)}={row[c]}" for c in known)
