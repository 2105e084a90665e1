"""Ladders: groups of points that are equal but for their number of workers, or of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dtsweep.analysis.launches import setting_columns
from dtsweep.errors import SweepError
from dtsweep.inference.contrasts import Contrasts, contrasts
from dtsweep.inference.spread import POINT, Launches

if TYPE_CHECKING:
    import pandas as pd

Per = Literal["worker", "node"]
"""The unit that sizes are counted in."""

ENDS = ("", "_low", "_high")
"""Suffixes of a number and of the ends of its 95 % interval."""

COMPARED = [f"{name}{end}" for name in ("speed_up", "efficiency", "gain") for end in ENDS]
"""Columns that compare a size with the smallest one of its group."""

_FAR_ABOVE_LINEAR = 2.0
"""Speed-up over the number of times more workers, above which one of the two rates is wrong."""

_SIZES = {"worker": "workers", "node": "hosts"}
_BATCH_SHAPE = ["workers", "micro_batch", "accumulation"]


class Ladders(NamedTuple):
    """Groups of points that differ only in their number of workers or nodes, and their settings."""

    rows: pd.DataFrame
    """Points of each group, smallest size first.

    Columns: `group`, `kind`, `base`, settings and measured columns.
    """
    size: str
    """Column that sizes are counted by."""
    compared: Mapping[Any, Contrasts]
    """Each size of a group with each, by `group`."""


def ladders_of(points: pd.DataFrame, launches: Callable[[Any], Launches], *, per: Per) -> Ladders:
    """Group points as `dtsweep.analysis.scaling` does, and compare each size of a group with each.

    Raises:
        SweepError: `per` is neither.
    """
    if per not in _SIZES:
        raise SweepError(f"scaling per {per!r} is not known; use per='worker' or per='node'")
    size = _SIZES[per]
    points = _with_grid(points.dropna(subset=["samples_per_s", size]))
    same = _shared_columns(points)
    if per == "node":
        points = points.assign(workers_per_node=points["workers"] / points["hosts"])
        same.append("workers_per_node")
    rows = _grouped_points(points, same=same, size=size)
    return Ladders(rows, size, _compared_sizes(rows, launches))


def _with_grid(points: pd.DataFrame) -> pd.DataFrame:
    """Points with 1 worker per model where that is unknown, as their samples are counted."""
    return points.assign(model_parallel=points["model_parallel"].fillna(1))


def _shared_columns(points: pd.DataFrame) -> list[str]:
    """Columns in which points of a ladder are equal; their grids differ in data parallelism."""
    settings = [name for name in setting_columns(points) if name not in _BATCH_SHAPE]
    return [*settings, "model_parallel", "model_digest", "env_id"]


def far_above_linear(points: pd.DataFrame) -> pd.DataFrame:
    """Select points whose rate is far above what their workers explain, whatever noise there is.

    Returns:
        Rows of them once each, with `base` (the smallest number of workers that is equal in all
        other settings) and `times` (their rate over the rate of that).
    """
    known = points.dropna(subset=["samples_per_s", "workers"])
    if not _may_be_far(known):
        return known.iloc[:0].assign(base=0, times=0.0)
    rows = _grouped_points(_with_grid(known), same=_shared_columns(points), size="workers")
    # Not `transform("first")`, which takes the first value that is not null.
    bases = rows.drop_duplicates("group").set_index("group").loc[rows["group"]]
    bases = bases.set_axis(rows.index)
    least = rows["samples_per_s_low"].fillna(rows["samples_per_s"])
    most = bases["samples_per_s_high"].fillna(bases["samples_per_s"])
    is_far = least / most > _FAR_ABOVE_LINEAR * rows["workers"] / rows["base"]
    times = rows["samples_per_s"] / bases["samples_per_s"]
    return rows.assign(times=times)[is_far].drop_duplicates(list(POINT))


def _may_be_far(points: pd.DataFrame) -> bool:
    """True if rates per worker differ by so much among points of one shape: a quick look."""
    per_worker = points["samples_per_s"] / points["workers"]
    for keys in (["micro_batch", "accumulation"], ["global_batch"]):
        groups = per_worker.groupby([points[key] for key in keys], dropna=False)
        if (groups.max() > _FAR_ABOVE_LINEAR * groups.min()).any():
            return True
    return False


def _compared_sizes(
    rows: pd.DataFrame, launches: Callable[[Any], Launches]
) -> dict[Any, Contrasts]:
    """Compare the throughput of each row of a group with each, by `group`."""
    compared: dict[Any, Contrasts] = {}
    for env_id, env_rows in rows.groupby("env_id", dropna=False):
        env_launches = launches(env_id)
        numbers = env_rows[list(POINT)].merge(
            env_launches.points.reset_index(names="row"), how="left", on=list(POINT)
        )
        for group, places in env_rows.reset_index().groupby("group").indices.items():
            points = numbers["row"].to_numpy()[places]
            compared[group] = contrasts(env_launches, points, points, assumes_equal=True)
    return compared


def _grouped_points(points: pd.DataFrame, *, same: list[str], size: str) -> pd.DataFrame:
    import pandas as pd

    rates = [f"samples_per_s{end}" for end in ENDS]
    measured_columns = ["launches", *rates, *COMPARED, "caution"]
    names = [
        "group",
        "kind",
        "point_id",
        *same,
        "hosts",
        *_BATCH_SHAPE,
        "global_batch",
        "base",
        *measured_columns,
    ]
    shown = list(dict.fromkeys(names))
    # Workers that exchange nothing train a model each: more of them don't train one faster.
    trains_one = points["semantics"] != "not_exchanged"
    points = points.reindex(columns=[n for n in shown if n in points]).loc[trains_one]
    weak = _grouped(points, kind="weak", keys=[*same, "micro_batch", "accumulation"], size=size)
    batched = points.dropna(subset=["global_batch"])
    strong = _grouped(batched, kind="strong", keys=[*same, "global_batch"], size=size)
    strong["group"] += weak["group"].nunique()
    return pd.concat([weak, strong], ignore_index=True).reindex(columns=shown)


def _grouped(points: pd.DataFrame, *, kind: str, keys: list[str], size: str) -> pd.DataFrame:
    """Rows of one kind: the fastest point of each size, for groups of several sizes."""
    if points[size].nunique() < 2:
        points = points.iloc[:0]
    # Numbered once: many keys are slow to group by.
    numbered = points.assign(group=points.groupby(keys, dropna=False).ngroup(), kind=kind)
    fastest = numbered.sort_values("samples_per_s", ascending=False)
    rows = fastest.drop_duplicates(["group", size]).sort_values(size)
    rows = rows[rows.groupby("group")[size].transform("nunique") > 1]
    groups = rows.groupby("group")
    return rows.assign(group=groups.ngroup(), base=groups[size].transform("first")).sort_values(
        ["group", size]
    )
