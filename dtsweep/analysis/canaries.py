"""Drift of the machine, from canaries.

A canary is one fixed point of a session's largest world. It is measured at both ends of the session
and between.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.launches import without_canaries
from dtsweep.measure.drift import Level, change, level_of, median_of
from dtsweep.results.store import ORDER
from dtsweep.sweep.point import World

if TYPE_CHECKING:
    import pandas as pd


_WHERE = ("env_id", "cpus_per_worker", "gpus_per_worker")

WORLD = ("point_id", *(item.name for item in fields(World)), *_WHERE)
"""Columns of the point of a canary and its world."""

_COMPARED = (*WORLD, "alone")
"""Columns that canaries must share to be comparable; `alone` where no other trial ran."""

_COLUMNS = {
    "canaries": "int64",
    **dict.fromkeys(("first_s", "last_s", "first_ratio", "last_ratio"), "float64"),
    **dict.fromkeys(("drift", "drift_low", "drift_high", "known_to"), "float64"),
    "flagged": "boolean",
    "trials": "int64",
}
"""Columns of what is compared, with their types."""


def canaries_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the canaries of a frame; `dtsweep.analysis.study.canaries` describes the columns."""
    rows = frame[frame["role"].isin(["canary"]) & (frame["status"] == "ok")].dropna(
        subset=["step_mean_s"]
    )
    if rows.empty:
        return _nothing_compared(rows)
    rows = rows.assign(alone=rows["concurrent_trials"].fillna(0) == 0)
    rows = _with_world_ratios(rows.sort_values(ORDER, kind="stable"))
    sessions = rows.groupby([*_COMPARED, "session"], dropna=False, sort=False)
    rows = rows.assign(count=sessions["ratio"].transform("size")).set_index(sessions.ngroup())
    first, last = (rows[~rows.index.duplicated(keep=end)].sort_index() for end in ("first", "last"))
    several = first["count"] > 1
    compares = first["in_world"] > 1
    deviations = rows.groupby(level=0)
    drift = change(_levels(last), _levels(first))
    has_drifted = deviations["is_drift"].any() | drift.is_drift
    is_unknown = deviations["hides_drift"].any() | drift.hides_drift & several
    trials = without_canaries(frame[frame["status"] == "ok"])["session"].value_counts()
    return first[[*_COMPARED, "session"]].assign(
        canaries=first["count"],
        first_s=first["step_mean_s"],
        last_s=last["step_mean_s"].where(several),
        first_ratio=first["ratio"],
        last_ratio=last["ratio"].where(several),
        drift=drift.share.where(several),
        drift_low=(drift.share - drift.half_width).where(several),
        drift_high=(drift.share + drift.half_width).where(several),
        known_to=np.fmax(deviations["known_to"].max(), drift.half_width.where(several)).where(
            compares
        ),
        flagged=has_drifted.astype("boolean").where(compares & (has_drifted | ~is_unknown)),
        trials=first["session"].map(trials).fillna(0).astype("int64"),
    )


def _nothing_compared(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns of `canaries_of`, without a row."""
    import pandas as pd

    compared = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in _COLUMNS.items()})
    keys = rows.assign(alone=True)[[*_COMPARED, "session"]].reset_index(drop=True)
    return pd.concat([keys, compared], axis="columns")


def drift_of(canary_rows: pd.DataFrame) -> float | None:
    """Largest difference between two trials that drift of the machine can explain.

    Returns:
        Excess time of the same point at one time over another, as a share, where the canaries show
        a drift; else the smallest drift that they would show (`known_to`); None if there were none
        to compare.
    """
    drifted = canary_rows[canary_rows["flagged"].fillna(value=False)]
    if drifted.empty:
        if canary_rows["known_to"].isna().all():
            return None
        return float(canary_rows["known_to"].max())
    worlds = drifted.groupby(list(_COMPARED), dropna=False)[["first_ratio", "last_ratio"]]
    # Ratios are to what the canaries of the world have in common, 1; of one canary there is no last
    # one: nan.
    slowest = worlds.max().max(axis=1).clip(lower=1.0)
    fastest = worlds.min().min(axis=1).clip(upper=1.0)
    return float((slowest / fastest).max()) - 1


def significant_drift(canary_rows: pd.DataFrame) -> float | None:
    """Drift that the canaries show, as `drift_of` gives it; None if they show no drift."""
    return drift_of(canary_rows[canary_rows["flagged"].fillna(value=False)])


def _levels(rows: pd.DataFrame) -> Level:
    return level_of(
        rows["step_mean_s"], error_s=rows["step_mean_s_error"], half_width=rows["half_width"]
    )


def _with_world_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each canary with the median of its world's."""
    worlds = rows.groupby(list(_COMPARED), dropna=False)
    medians = np.array([median_of(_levels(world)) for _, world in worlds]).reshape(-1, 2)[
        worlds.ngroup()
    ]
    deviation = change(_levels(rows), Level(*medians.T))
    return rows.assign(
        in_world=worlds["step_mean_s"].transform("size"),
        ratio=deviation.share + 1,
        known_to=deviation.half_width,
        is_drift=deviation.is_drift,
        hides_drift=deviation.hides_drift,
    )
