"""Trials to points: the repeats of a point are launches of one job, and are combined here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtsweep.point import FIELD_TYPES

if TYPE_CHECKING:
    import pandas as pd

_RATES_AND_TIMES = ("latency_s", "samples_per_s", "tokens_per_s", "step_mean_s", "step_p50_s")
_FACTS = ("semantics", "global_batch", "hosts", "devices")


def setting_columns(frame: pd.DataFrame) -> list[str]:
    """Name the columns that say what was set, as against what was measured.

    Args:
        frame: trials or points.

    Returns:
        The fields of a point, `workload` and its fields, in the frame's words: two rows that agree in all of
        them differ at most in where and when they ran.
    """
    workload = [c for c in frame.columns if c.startswith("workload_") and c != "workload_digest"]
    return [c for c in ("workload", *FIELD_TYPES, "environment", *workload) if c in frame.columns]


def over_launches(frame: pd.DataFrame) -> pd.DataFrame:
    """Combine the `ok` trials of each point and environment into one row.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        One row per (`point_id`, `env_id`): the settings; `launches`; the means over launches of rates and
        step times; the highest `memory_peak_bytes`; `latency_s` (`step_p50_s`, or `step_mean_s` where
        semantics is local). `_low` and `_high` of `latency_s` and `samples_per_s` are a 95 % interval: of the
        launch means (Student's t) from two launches on, else within the one launch, else null.
    """
    trials = _with_latency(frame[frame["status"] == "ok"])
    groups = trials.groupby(["point_id", "env_id"], dropna=False, sort=False)
    kept = [*setting_columns(frame), *(c for c in _FACTS if c in frame.columns)]
    points = groups[kept].first()
    points["launches"] = groups.size()
    points[list(_RATES_AND_TIMES)] = groups[list(_RATES_AND_TIMES)].mean()
    points["memory_peak_bytes"] = groups["memory_peak_bytes"].max()
    half_width = _half_widths(groups[["latency_s", "samples_per_s"]].std(), launches=points["launches"])
    for name in ("latency_s", "samples_per_s"):
        within = groups[[f"{name}_low", f"{name}_high"]].first()
        one_launch = points["launches"] == 1
        points[f"{name}_low"] = (points[name] - half_width[name]).mask(one_launch, within[f"{name}_low"])
        points[f"{name}_high"] = (points[name] + half_width[name]).mask(one_launch, within[f"{name}_high"])
    return points.reset_index()


def _with_latency(trials: pd.DataFrame) -> pd.DataFrame:
    """Add `latency_s` with its interval in the launch; the other measured columns become float64."""
    measured = ["samples_per_s", "tokens_per_s", "step_mean_s", "step_p50_s"]
    bounds = ["samples_per_s_low", "samples_per_s_high", "step_p50_s_low", "step_p50_s_high"]
    trials = trials.astype(dict.fromkeys([*measured, *bounds], "float64"))
    local = trials["semantics"] == "local"
    # The window has a fixed number of samples and steps, so the rate's relative interval is the mean step's.
    mean_low = trials["step_mean_s"] * trials["samples_per_s"] / trials["samples_per_s_high"]
    mean_high = trials["step_mean_s"] * trials["samples_per_s"] / trials["samples_per_s_low"]
    return trials.assign(
        latency_s=trials["step_p50_s"].mask(local, trials["step_mean_s"]),
        latency_s_low=trials["step_p50_s_low"].mask(local, mean_low),
        latency_s_high=trials["step_p50_s_high"].mask(local, mean_high),
    )


def _half_widths(deviations: pd.DataFrame, *, launches: pd.Series[int]) -> pd.DataFrame:
    """Half of the 95 % interval of a mean over launches; null for one launch."""
    import numpy as np
    from scipy.special import stdtrit

    several = launches.where(launches > 1).astype("float64").to_numpy()
    return deviations.mul(stdtrit(several - 1, 0.975) / np.sqrt(several), axis=0)
