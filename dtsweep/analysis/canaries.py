"""Did the machine drift? One fixed point of a session's largest world is measured at both ends of it."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtsweep.analysis.launches import without_canaries
from dtsweep.results.statuses import CANARY_DRIFT
from dtsweep.sweep.point import World
from dtsweep.sweep.settings import LEAST_HALF_WIDTH

if TYPE_CHECKING:
    import pandas as pd

_WHERE = ("env_id", "cpus_per_worker", "gpus_per_worker")

WORLD = ("point_id", *(item.name for item in fields(World)), *_WHERE)
"""What makes canaries comparable: they are the same point of the same world."""


class Level(NamedTuple):
    """Mean steps of canaries, and how well they are known: numbers, or columns of them."""

    step_s: Any
    half_width: Any
    """Of the 95 % interval, as a share of the mean; nan where it is unknown."""


class Change(NamedTuple):
    """What one level differs from another by, as a share of the other, and how well that is known."""

    share: Any
    half_width: Any
    """Of the 95 % interval of `share`; nan where it is unknown."""

    @property
    def is_drift(self) -> Any:
        """Whether it is more than 2 %, and more than chance."""
        return abs(self.share) > np.maximum(CANARY_DRIFT, self.half_width)

    @property
    def hides_drift(self) -> Any:
        """Whether there may be a drift that these canaries are known too badly to show."""
        return ~(self.is_drift | (self.half_width <= CANARY_DRIFT))


def change(now: Level, then: Level) -> Change:
    """Compare two levels."""
    ratio = now.step_s / then.step_s
    return Change(ratio - 1, ratio * np.hypot(now.half_width, then.half_width))


def median_of(levels: Level) -> Level:
    """The median of columns of levels, of which the better known ones count for more; its half-width is about right.

    >>> median_of(Level([1.0, 1.2], [0.01, 0.01])).step_s, median_of(Level([1.0, 1.2], [0.01, 0.5])).step_s
    (1.1, 1.0)
    """
    order = np.argsort(levels.step_s)
    steps, half_widths = (np.asarray(column, dtype=np.float64)[order] for column in levels)
    weights = np.nan_to_num(1 / half_widths)
    if not weights.any():
        return Level(float(np.median(steps)), math.nan)
    below = np.cumsum(weights) / weights.sum()
    # Two of them where one has exactly half of the weight below it.
    around = steps[np.searchsorted(below, [0.5 - 1e-9, 0.5 + 1e-9])]
    # That of a mean of two; the median of more normal values is π / 2 times as variable as their mean.
    spread = math.sqrt(math.pi / 2) if len(steps) > 2 else 1.0
    return Level(float(around.mean()), spread / float(np.sqrt(np.sum(weights**2))))


def canaries(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the canaries of each session with each other and with those of their world.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included.

    Returns:
        One row per world and session that measured a canary, the earliest first: the world; `session`; `canaries`
        (how many ended `ok`); `first_s` and `last_s`, their `step_mean_s`, and `first_ratio` and `last_ratio`, the
        same over the median of all canaries of the world (the better one is known, the more it counts); `drift` =
        last ÷ first - 1, with `drift_low` and `drift_high`, its 95 % interval; `known_to`, half of the widest 95 %
        interval of what is compared; `flagged`: the drift, or what a canary is from the world's median, is more than
        2 % and more than its own interval; null where it is not, but such an interval is wider than 2 %; `trials`
        that the session measured `ok`. With one canary `last_s`, `last_ratio` and the drift are null; with one in
        the whole world `flagged` and `known_to` are null too, because nothing can be compared.
    """
    rows = frame[frame["role"].isin(["canary"]) & (frame["status"] == "ok")].dropna(subset=["step_mean_s"])
    rows = _beside_their_world(rows.sort_values("started_at", kind="stable"))
    sessions = rows.groupby([*WORLD, "session"], dropna=False, sort=False)
    rows = rows.assign(count=sessions["ratio"].transform("size")).set_index(sessions.ngroup())
    first, last = (rows[~rows.index.duplicated(keep=end)].sort_index() for end in ("first", "last"))
    several, compares, off = first["count"] > 1, first["in_world"] > 1, rows.groupby(level=0)
    drift = change(_levels(last), _levels(first))
    drifted = off["is_drift"].any() | drift.is_drift
    is_unknown = off["hides_drift"].any() | drift.hides_drift & several
    trials = without_canaries(frame[frame["status"] == "ok"])["session"].value_counts()
    return first[[*WORLD, "session"]].assign(
        canaries=first["count"],
        first_s=first["step_mean_s"],
        last_s=last["step_mean_s"].where(several),
        first_ratio=first["ratio"],
        last_ratio=last["ratio"].where(several),
        drift=drift.share.where(several),
        drift_low=(drift.share - drift.half_width).where(several),
        drift_high=(drift.share + drift.half_width).where(several),
        known_to=np.fmax(off["known_to"].max(), drift.half_width.where(several)).where(compares),
        flagged=drifted.astype("boolean").where(compares & (drifted | ~is_unknown)),
        trials=first["session"].map(trials).fillna(0).astype("int64"),
    )


def drift_of(watched: pd.DataFrame) -> float | None:
    """Say up to which size a difference between two trials may be the machine's own.

    Args:
        watched: rows of `canaries`.

    Returns:
        What the same point took longer at one time than at another, as a share, where canaries tell of a drift; else
        down to which one they would (`known_to`); None where there were none to compare.
    """
    drifted = watched[watched["flagged"].fillna(value=False)]
    if drifted.empty:
        return None if watched["known_to"].isna().all() else float(watched["known_to"].max())
    worlds = drifted.groupby(list(WORLD), dropna=False)[["first_ratio", "last_ratio"]]
    # Ratios are to what the canaries of the world have in common, 1; of one canary there is no last one: nan.
    slowest, fastest = worlds.max().max(axis=1).clip(lower=1.0), worlds.min().min(axis=1).clip(upper=1.0)
    return float((slowest / fastest).max()) - 1


def told_drift(watched: pd.DataFrame) -> float | None:
    """Say how large a drift canaries tell of, as `drift_of` does; None where they tell of none."""
    return drift_of(watched[watched["flagged"].fillna(value=False)])


def level_of(step_s: Any, *, error_s: Any, half_width: Any) -> Level:
    """The level that a canary shows, known as well as the steps that came say, without what is rare.

    Args:
        step_s: its mean step, or a column of them.
        error_s: the standard error of that; nan in rows of older versions whose steps are gone, and
        half_width: a share, which counts then.
    """
    by_steps = np.maximum(LEAST_HALF_WIDTH, 2 * error_s / step_s)
    return Level(step_s, np.where(np.isnan(error_s), half_width, by_steps))


def _levels(rows: pd.DataFrame) -> Level:
    return level_of(rows["step_mean_s"], error_s=rows["step_mean_s_error"], half_width=rows["half_width"])


def _beside_their_world(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each canary with the median of its world's."""
    worlds = rows.groupby(list(WORLD), dropna=False)
    medians = np.array([median_of(_levels(world)) for _, world in worlds]).reshape(-1, 2)[worlds.ngroup()]
    off = change(_levels(rows), Level(*medians.T))
    return rows.assign(
        in_world=worlds["step_mean_s"].transform("size"),
        ratio=off.share + 1,
        known_to=off.half_width,
        is_drift=off.is_drift,
        hides_drift=off.hides_drift,
    )
