"""Trials to points: the repeats of a point are launches of one job, and are combined here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.spread import pooled_is_better, spread_of
from dtsweep.analysis.utilization import by_best_peak
from dtsweep.measure.statistics import students_t
from dtsweep.sweep.modes import latency_column
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

_SHARES = ("mfu", "comm_share", "exchange_share", "wait_share")
_RATES_AND_TIMES = ("latency_s", "samples_per_s", "tokens_per_s", "step_mean_s", "step_p50_s", *_SHARES)
_FACTS = ("semantics", "global_batch", "hosts", "devices")
_WITH_INTERVAL = {"latency_s": True, "samples_per_s": True, "comm_share": False}
"""What gets an interval over launches, and whether its spread between launches is relative to its size."""


def setting_columns(frame: pd.DataFrame) -> list[str]:
    """Name the columns that say what was set, as against what was measured.

    Args:
        frame: trials or points.

    Returns:
        The fields of a point, `workload` and its fields, in the frame's words: two rows that agree in all of
        them differ at most in where and when they ran.
    """
    workload = [c for c in frame.columns if c.startswith("workload_") and c != "workload_digest"]
    return [c for c in ("workload", *AXES, "environment", *workload) if c in frame.columns]


def without_canaries(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out what watches the machine: rows without a role are trials, as in results before there was one."""
    return frame[~frame["role"].isin(["canary"])]


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Select what was measured, one row per launch of a point.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The `ok` trials without canaries, with `launch` (the session, or else the trial itself) and `latency_s`
        (`dtsweep.sweep.modes.latency_column`) with its interval within the launch; `mfu` is comparable
        (`by_best_peak`).
    """
    trials = without_canaries(frame[frame["status"] == "ok"])
    names = ["samples_per_s", "step_mean_s", "step_p50_s", "comm_share"]
    bounds = [f"{name}_{end}" for name in names for end in ("low", "high")]
    # astype leaves every column in memory of its own, which pandas warns of; a copy is in one piece.
    trials = trials.astype(dict.fromkeys([*names, *bounds, "tokens_per_s", "mfu"], "float64")).copy()
    by_mean = trials["semantics"].map(latency_column) == "step_mean_s"
    latency = {
        f"latency_s{end}": trials[f"step_p50_s{end}"].mask(by_mean, trials[f"step_mean_s{end}"])
        for end in ("", "_low", "_high")
    }
    return by_best_peak(trials).assign(
        launch=trials["session"].where(trials["session"].notna(), trials["trial_id"]),
        **latency,
    )


def launch_sigma(frame: pd.DataFrame, *, of: str = "samples_per_s") -> pd.DataFrame:
    """Estimate what launches of one and the same point differ by, beyond what their steps explain.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        of: `samples_per_s`, `latency_s`, `step_mean_s` or `step_p50_s`.

    Returns:
        One row per `env_id` (the index), as shares of the point's mean: `launch_sigma`, the standard deviation
        between launches; `spread`, the same with the variance within launches; `degrees` of freedom of both.
        An environment where no point has two launches has no row.
    """
    return spread_of(measured(frame), of)


def over_launches(frame: pd.DataFrame) -> pd.DataFrame:
    """Combine the `ok` trials of each point and environment into one row; canaries are left out.

    `_low` and `_high` of `latency_s`, `samples_per_s` and `comm_share` are a 95 % interval. `interval` says which:

    - `launches`: Student's t over the point's own launch means.
    - `pooled`: with the spread between launches that all points of the environment have in common. With several
      launches it takes the place of the point's own where it is known with at least twice the degrees of
      freedom. One launch gets half-widths of sqrt(h² + (t · launch_sigma · mean)²), h within the launch.
    - `launch`: within the one launch there is; another launch may well lie outside.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        One row per (`point_id`, `env_id`): the settings; `launches`; the means over launches of rates, step
        times and shares; the highest `memory_peak_bytes`; `latency_s` (`step_p50_s`, or `step_mean_s` where
        semantics is local); the intervals; `interval`, null where there is none.
    """
    trials = measured(frame)
    groups = trials.groupby(["point_id", "env_id"], dropna=False, sort=False)
    kept = [*setting_columns(frame), *(c for c in _FACTS if c in frame.columns)]
    points = groups[kept].first()
    points["launches"] = groups.size()
    points[list(_RATES_AND_TIMES)] = groups[list(_RATES_AND_TIMES)].mean()
    points["memory_peak_bytes"] = groups["memory_peak_bytes"].max()
    points["interval"] = None
    for name, relative in _WITH_INTERVAL.items():
        found = _intervals(trials, name, relative=relative).reindex(points.index)
        points[[f"{name}_low", f"{name}_high"]] = found[["low", "high"]]
        if name != "comm_share":
            points["interval"] = points["interval"].where(points["interval"].notna(), found["interval"])
    return points.reset_index()


def _intervals(trials: pd.DataFrame, name: str, *, relative: bool) -> pd.DataFrame:
    """`low`, `high` and the kind of `interval`, by (`point_id`, `env_id`)."""
    known = trials.dropna(subset=[name])
    groups = known.groupby(["point_id", "env_id"], dropna=False, sort=False)
    rows = groups[[name, f"{name}_low", f"{name}_high"]].mean().set_axis(["mean", "low", "high"], axis=1)
    launches, several = groups.size(), groups.size() > 1
    pool = spread_of(known, name, relative=relative).reindex(rows.index.get_level_values("env_id")).set_axis(rows.index)
    unit = rows["mean"] if relative else 1.0
    pooled = pooled_is_better(launches - 1, pooled=pool["degrees"], launches=launches)
    pooled &= several | pool["launch_sigma"].notna()
    spread = groups[name].std().mask(pooled, pool["spread"] * unit)
    half = students_t((launches - 1).mask(pooled, pool["degrees"])) * spread / launches**0.5
    beyond = (students_t(pool["degrees"]) * pool["launch_sigma"] * unit).where(pooled, 0.0)
    low = (rows["mean"] - np.hypot(rows["mean"] - rows["low"], beyond)).mask(several, rows["mean"] - half)
    high = (rows["mean"] + np.hypot(rows["high"] - rows["mean"], beyond)).mask(several, rows["mean"] + half)
    kinds = several.map({True: "launches", False: "launch"}).mask(pooled, "pooled").where(low.notna(), None)
    return rows.assign(low=low, high=high, interval=kinds)
