"""Labels of points and axes, as people read them in tables and titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.settings import axis_name
from dtsweep.errors import LABEL_SHOWN, one_line, shortened
from dtsweep.inference.spread import POINT
from dtsweep.results.schema import IMPORTED
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.modes import MODE_FIELDS, OWN, UNDECLARED, mode_in_results
from dtsweep.sweep.point_axes import AXES, is_left_out
from dtsweep.sweep.values import OF_LOOPS

if TYPE_CHECKING:
    import pandas as pd

BATCH_SHAPE = ("workers", "micro_batch", "accumulation")
"""Settings that a table of points gives a column each; a label leaves them out."""


def varying_columns(points: pd.DataFrame) -> list[str]:
    """Name the columns that tell points apart: settings with several values, and `hosts`.

    Args:
        points: rows of `over_launches`; `hosts` is named if one point ran on several numbers of
            them.
    """
    is_imported = points["harness"] == IMPORTED
    kinds = [points[is_imported], points[~is_imported]]
    are_compared = bool(set(kinds[0]["env_id"]) & set(kinds[1]["env_id"]))
    # An imported row lacks most settings: null there does not differ from a measured value.
    varying = [
        name
        for name in setting_columns(points)
        if max(kind[name].nunique(dropna=False) for kind in kinds) > 1
        or (are_compared and points[name].nunique() > 1)
    ]
    if points.duplicated(["point_id", "env_id"]).any():
        varying.append("hosts")
    return varying


def argument_columns(columns: Sequence[str]) -> list[str]:
    """Those of the columns that only a user's loop has; tables give each a column.

    >>> argument_columns(["workers", "workload_args.batch-size"])
    ['workload_args.batch-size']
    """
    beginnings = tuple(f"workload_{beginning}" for beginning in OF_LOOPS)
    return [column for column in columns if column.startswith(beginnings)]


def point_key(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Identify a point of a frontier: `POINT` of it, as one text.

    >>> point_key({"point_id": "1f", "env_id": None, "hosts": 2})
    '1f//2'
    """
    import pandas as pd

    return "/".join("" if pd.isna(row[name]) else str(row[name]) for name in POINT)


def update_labels(points: pd.DataFrame) -> list[str]:
    """Semantics of points, with the kind of update where the points have several of it.

    An example is "local (gossip averaging)".
    """
    counts = points.groupby("semantics")["update_kind"].transform("nunique")
    rows = zip(points["semantics"], points["update_kind"], counts, strict=True)
    return [
        f"{semantics} ({kind})" if kind and count > 1 else str(semantics)
        for semantics, kind, count in rows
    ]


def passes_label(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Samples of a worker's step as `micro_batch × accumulation`, or what is known of them.

    >>> passes_label({"micro_batch": 8, "accumulation": 2, "global_batch": 32, "workers": 2})
    '8 × 2'
    >>> passes_label({"micro_batch": None, "accumulation": 2, "global_batch": 32, "workers": 2})
    '16'
    """
    import pandas as pd

    micro_batch, accumulation = row["micro_batch"], row["accumulation"]
    if pd.notna(micro_batch) and pd.notna(accumulation):
        return f"{micro_batch} × {accumulation}"
    if pd.notna(row["global_batch"]):
        return f"{row['global_batch'] / row['workers']:g}"
    return "unknown"


def model_columns(points: pd.DataFrame) -> list[str]:
    """Name the settings of workloads that distinguish models.

    Such a setting has one value in all points of a model, but not in all points. Empty if the
    settings don't distinguish every model from every other one.
    """
    names = [
        name
        for name in setting_columns(points)
        if name == "workload" or name.startswith("workload_")
    ]
    models = points.groupby("model_digest", dropna=False)
    constant = [name for name in names if models[name].nunique(dropna=False).max() == 1]
    differing = [name for name in constant if points[name].nunique(dropna=False) > 1]
    if len(points[differing].drop_duplicates()) != models.ngroups:
        return []
    return differing


def model_label(row: pd.Series[Any], model_settings: Sequence[str]) -> str:
    """Name the model of a row by the settings of `model_columns`, else by its digest.

    An example is "workload.layers=2".
    """
    if label := settings_label(row, model_settings):
        return label
    digest = row["model_digest"]
    return f"model {one_line(digest)}" if isinstance(digest, str) else "model unknown"


def product_parts(
    first: pd.Series[Any], differing: Sequence[str], model_settings: Sequence[str], label: str = ""
) -> list[str]:
    """Parts of a name that tell a workload, model and environment from others.

    Args:
        first: a row of it.
        differing: those of `workload`, `model_digest` and `env_id` that have several values.
        model_settings: of `model_columns`.
        label: of its points, before the environment.
    """
    parts = []
    if "workload" in differing and "workload" not in model_settings:
        parts.append(shortened(str(first["workload"]), LABEL_SHOWN))
    if "model_digest" in differing:
        parts.append(model_label(first, model_settings))
    parts.append(label)
    if "env_id" in differing:
        parts.append(f"env_id {first['env_id']}")
    return [part for part in parts if part]


def point_label(row: Mapping[Any, Any] | pd.Series[Any], varying: Sequence[str]) -> str:
    """Name the sync mode of a row with its settings and compression, then other axes that vary.

    An example is "ring int8 bf16".
    """
    import pandas as pd

    mode = str(row["sync"])
    info = mode_in_results(mode)
    read: Iterable[str] = info.reads
    if info is UNDECLARED or mode == OWN:
        # Results have no declaration of it. What it reads is stored, what it does not read is null.
        read = [name for name in MODE_FIELDS if pd.notna(row[name])]
    values = {name: row[name] if pd.notna(row[name]) else None for name in read}
    mode_settings = " ".join(
        f"{name}={value}" for name, value in values.items() if not is_left_out(name, value)
    )
    further_axes = [
        axis
        for axis in varying
        if axis not in ("sync", *MODE_FIELDS, "compression", *COMPRESSION_FIELDS, *BATCH_SHAPE)
    ]
    labels = (mode, mode_settings, _compression_label(row), settings_label(row, further_axes))
    return one_line(" ".join(filter(None, labels)))


def _compression_label(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Name the compression of a row with its settings; empty if nothing is compressed.

    An example is "topk ratio=0.01".
    """
    import pandas as pd

    compression, ratio, rank = (row.get(name) for name in ("compression", *COMPRESSION_FIELDS))
    if pd.isna(compression):
        return ""
    settings = {"ratio": ratio, "rank": rank}
    known_settings = [f"{name}={value:g}" for name, value in settings.items() if pd.notna(value)]
    return one_line(" ".join([str(compression), *known_settings]))


def trial_label(row: Mapping[Any, Any] | pd.Series[Any], varying: Sequence[str]) -> str:
    """Name a row as `point_label` does, with the batch shape where it varies.

    An example is "ddp workers=2 micro_batch=4".
    """
    import pandas as pd

    names = [name for name in BATCH_SHAPE if name in varying and pd.notna(row[name])]
    shape = [f"{name}={row[name]}" for name in names]
    return " ".join([point_label(row, varying), *shape])


def trial_labels(rows: pd.DataFrame, varying: Sequence[str]) -> list[str]:
    """Name rows as `trial_label` does."""
    return [trial_label(row, varying) for row in rows.to_dict("records")]


def settings_label(row: Mapping[Any, Any] | pd.Series[Any], columns: Sequence[str]) -> str:
    """Name settings of a row, those that are null or off left out: "bf16 workload.layers=2"."""
    import pandas as pd

    names = [
        name
        for name in columns
        if pd.notna(row[name]) and not (name in AXES and is_left_out(name, row[name]))
    ]
    by_value = ("workload", *(axis for axis, declared in AXES.items() if declared.choices))
    labels = []
    for name in names:
        value = one_line(shortened(str(row[name]), LABEL_SHOWN))
        labels.append(value if name in by_value else f"{axis_name(name)}={value}")
    return " ".join(labels)
