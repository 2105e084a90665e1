"""What more workers, or more nodes, bring: speed-up and efficiency against the smallest world of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from dtsweep.analysis.contrasts import contrasts, logarithms_of
from dtsweep.analysis.launches import joined_cautions, measured, points_of, setting_columns
from dtsweep.analysis.spread import POINT, of_environment
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    import pandas as pd

_SIZES = {"worker": "workers", "node": "hosts"}
_BATCH_SHAPE = ["workers", "micro_batch", "accumulation"]
_BOUNDS = ["speed_up_low", "speed_up_high", "efficiency_low", "efficiency_high"]
_MEASURED = ["launches", "samples_per_s", "speed_up", "efficiency", *_BOUNDS, "caution"]


def scaling(frame: pd.DataFrame, *, per: Literal["worker", "node"] = "worker") -> pd.DataFrame:
    """Compare the throughput of larger worlds with the smallest one of their group.

    A group has points of one model (`model_digest`) and one source of the workload that are equal in all fields but
    workers, micro_batch and accumulation, and were measured in one environment; per node also in the workers on each
    node. `weak`: equal micro_batch and accumulation. `strong`: equal global_batch, where the fastest micro_batch ×
    accumulation of a size stands for it; a point without global_batch (an asynchronous mode) is in no strong group. The
    fastest is a maximum of noisy rates, so a little too high, more so where more shapes were measured. A size that was
    measured on several numbers of hosts is stood for by the fastest, too.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        per: what a world is counted in: workers, or nodes (`hosts`).

    Returns:
        One row per group and size, smallest first: `group` (number), `kind`, the settings, `base` (the
        smallest size of the group), `speed_up` over the base as `difference` estimates it (where it compares in pairs,
        that need not be the ratio of the two `samples_per_s`), `efficiency` = speed_up ÷ (size ÷ base), and `_low` and
        `_high` of both, their 95 % intervals; `caution`, as in `over_launches`, of the row and of its base. Groups of
        one size give no row.

    Raises:
        SweepError: `per` is neither.
    """
    if per not in _SIZES:
        raise SweepError(f"scaling per {per!r} is not known; use per='worker' or per='node'")
    trials = measured(frame)
    points = points_of(trials).dropna(subset=["samples_per_s", _SIZES[per]])
    same = [c for c in setting_columns(points) if c not in _BATCH_SHAPE] + ["model_digest", "older_source", "env_id"]
    if per == "node":
        points["workers_per_node"] = points["workers"] / points["hosts"]
        same.append("workers_per_node")
    rows = _grouped_points(points, same=same, size=_SIZES[per])
    size, (estimate, reach) = (rows[_SIZES[per]] / rows["base"]).astype("float64"), _to_base(rows, trials)
    for end, logarithm in {"": estimate, "_low": estimate - reach, "_high": estimate + reach}.items():
        rows[f"speed_up{end}"] = np.exp(logarithm)
        rows[f"efficiency{end}"] = rows[f"speed_up{end}"] / size
    base = rows.groupby("group")["caution"].transform("first")
    rows["caution"] = [joined_cautions(both) for both in zip(base, rows["caution"], strict=True)]
    return rows


def _to_base(rows: pd.DataFrame, trials: pd.DataFrame) -> tuple[pd.Series[float], pd.Series[float]]:
    """Each row's throughput to its base, as `difference` compares them.

    Returns:
        The logarithm of the ratio, and half of its 95 % interval, nan where there is no test.
    """
    estimates, reaches = rows["samples_per_s"] * np.nan, rows["samples_per_s"] * np.nan
    for env_id, there in rows.groupby("env_id", dropna=False):
        launches = logarithms_of(of_environment(trials, env_id), "samples_per_s")
        numbers = there[list(POINT)].merge(launches.points.reset_index(names="row"), how="left", on=list(POINT))
        for places in there.reset_index().groupby("group").indices.values():
            found = contrasts(launches, numbers["row"].to_numpy()[places], numbers["row"].to_numpy()[places[:1]])
            is_base = places == places[0]
            estimates[there.index[places]] = np.where(is_base, 0.0, found.estimate[:, 0])
            reaches[there.index[places]] = np.where(is_base, 0.0, found.reach[:, 0])
    return estimates, reaches


def _grouped_points(points: pd.DataFrame, *, same: list[str], size: str) -> pd.DataFrame:
    import pandas as pd

    weak = _grouped(points, kind="weak", keys=[*same, "micro_batch", "accumulation"], size=size)
    batched = points.dropna(subset=["global_batch"])
    strong = _grouped(batched, kind="strong", keys=[*same, "global_batch"], size=size)
    strong["group"] += weak["group"].nunique()
    shown = ["group", "kind", "point_id", *same, "hosts", *_BATCH_SHAPE, "global_batch", "base", *_MEASURED]
    return pd.concat([weak, strong], ignore_index=True).reindex(columns=list(dict.fromkeys(shown)))


def _grouped(points: pd.DataFrame, *, kind: str, keys: list[str], size: str) -> pd.DataFrame:
    """Rows of one kind: the fastest point of each size, for groups of several sizes."""
    fastest = points.sort_values("samples_per_s", ascending=False).drop_duplicates([*keys, size])
    rows = fastest.sort_values(size).assign(kind=kind)
    several = rows.groupby(keys, dropna=False)[size].transform("nunique") > 1
    rows = rows[several]
    groups = rows.groupby(keys, dropna=False)
    return rows.assign(group=groups.ngroup(), base=groups[size].transform("first")).sort_values(["group", size])
