"""Did the machine drift? One fixed point of each world is measured at both ends of a session."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from dtsweep.analysis.launches import without_canaries
from dtsweep.results.statuses import CANARY_DRIFT
from dtsweep.sweep.point import World

if TYPE_CHECKING:
    import pandas as pd

WORLD = ("point_id", *(item.name for item in fields(World)), "env_id", "cpus_per_worker", "gpus_per_worker")
"""What makes canaries comparable: they are the same point of the same world."""


def canaries(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the canaries of each session with each other and with those of their world.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included.

    Returns:
        One row per world and session that measured a canary, the earliest first: the world; `session`;
        `canaries` (how many ended `ok`); `first_s` and `last_s`, their `step_mean_s`, and `first_ratio` and
        `last_ratio`, the same over the median of all canaries of the world; `drift` = last ÷ first - 1; `trials`
        that the session measured `ok`; `flagged`: a canary is more than 2 % from the world's median, or the drift
        is more than that. With one canary `last_s`, `last_ratio` and `drift` are null; with one in the whole
        world `flagged` is null too, because nothing can be compared.
    """
    rows = frame[frame["role"].isin(["canary"]) & (frame["status"] == "ok")].dropna(subset=["step_mean_s"])
    rows = rows.sort_values("started_at", kind="stable")
    medians = rows.groupby(list(WORLD), dropna=False)["step_mean_s"].transform("median")
    worlds = rows.groupby(list(WORLD), dropna=False)["step_mean_s"].transform("size")
    rows = rows.assign(ratio=rows["step_mean_s"] / medians, off=(rows["step_mean_s"] / medians - 1).abs(), all=worlds)
    groups = rows.groupby([*WORLD, "session"], dropna=False, sort=False)
    found = groups.agg(
        canaries=("ratio", "size"),
        first_s=("step_mean_s", "first"),
        last_s=("step_mean_s", "last"),
        first_ratio=("ratio", "first"),
        last_ratio=("ratio", "last"),
        off=("off", "max"),
        all=("all", "first"),
    ).reset_index()
    several = found["canaries"] > 1
    found[["last_s", "last_ratio"]] = found[["last_s", "last_ratio"]].where(several)
    found["drift"] = found["last_s"] / found["first_s"] - 1
    flagged = (found["off"] > CANARY_DRIFT) | (found["drift"].abs() > CANARY_DRIFT)
    found["flagged"] = flagged.astype("boolean").mask(found["all"] == 1)
    trials = without_canaries(frame[frame["status"] == "ok"])["session"].value_counts()
    found["trials"] = found["session"].map(trials).fillna(0).astype("int64")
    return found.drop(columns=["off", "all"])
