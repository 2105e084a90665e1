"""Is one point really faster than another? Ratios with an interval over launches, and what it leaves to say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtsweep.analysis.launches import measured
from dtsweep.analysis.spread import pooled_is_better, spread_of
from dtsweep.errors import SweepError
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

_BETTER = {"samples_per_s": "greater", "latency_s": "smaller"}


class _Contrast(NamedTuple):
    """The difference of two logarithms, and how it is known."""

    estimate: float
    error: float
    """Its standard error."""
    degrees: float
    """Of freedom of that error; 0 where it is not known."""
    method: str


def difference(frame: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Compare two points by throughput and by latency, over launches.

    The logarithms of the launch means are compared. Which method, is decided by what was launched, before anything is
    known of the results:

    - `paired`: where two or more launches measured both points, launch by launch; what is particular to a launch then
      falls out. This is so for points of one world, which a session measures one after the other.
    - `welch`: Welch's t, where each point has launches of its own, at least two.
    - `paired, pooled` and `pooled`: the same with the spread that all points of the environment share (of the
      differences: the points that the same launches measured), where it is known with at least twice the degrees of
      freedom, and where a point has one launch.
    - `none`: too few launches; there is no interval, and the points are not distinguishable from launch noise.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        a: a `point_id`.
        b: another.

    Returns:
        One row per environment that measured both, and `of`: `samples_per_s` or `latency_s`: `ratio`, that of a
        over that of b (null where one of them is unknown), with `ratio_low` and `ratio_high`, its 95 % interval;
        `verdict` on a: "faster", "slower" or "not distinguishable"; `method`; `launches_a`, `launches_b`; `env_id`.

    Raises:
        SweepError: a point was not measured, or the two never in one environment.
    """
    import pandas as pd

    columns = [f"{of}{end}" for of in _BETTER for end in ("", "_low", "_high")]
    trials = measured(frame)[["point_id", "env_id", "launch", *columns]]
    for point in (a, b):
        if point not in set(trials["point_id"]):
            raise SweepError(f"no ok trial of point {point!r}; over_launches(frame).point_id lists what was measured")
    both = [there for _, there in trials.groupby("env_id", dropna=False) if {a, b} <= set(there["point_id"])]
    if not both:
        raise SweepError(f"points {a!r} and {b!r} were measured in different environments (env_id); run both in one")
    return pd.DataFrame([_compared(there, a, b, of=of) for there in both for of in _BETTER])


def _compared(trials: pd.DataFrame, a: str, b: str, *, of: str) -> dict[str, object]:
    """One row of `difference`, for the trials of one environment."""
    logs = trials.assign(log=np.log(trials[of]))
    ours, theirs = (_by_launch(logs, point) for point in (a, b))
    shared = ours.index.intersection(theirs.index)
    contrast = _paired(logs, a, b, launches=shared) if len(shared) > 1 else _separate(trials, ours, theirs, of=of)
    reach = contrast.error * float(students_t(contrast.degrees))
    low, high = contrast.estimate - reach, contrast.estimate + reach
    faster, slower = (low > 0, high < 0) if _BETTER[of] == "greater" else (high < 0, low > 0)
    return {
        "env_id": trials["env_id"].iloc[0],
        "of": of,
        "ratio": float(np.exp(contrast.estimate)),
        "ratio_low": float(np.exp(low)),
        "ratio_high": float(np.exp(high)),
        "verdict": "faster" if faster else "slower" if slower else "not distinguishable",
        "method": contrast.method,
        "launches_a": len(ours),
        "launches_b": len(theirs),
    }


def _by_launch(logs: pd.DataFrame, point: str) -> pd.Series[float]:
    return logs[logs["point_id"] == point].dropna(subset=["log"]).groupby("launch")["log"].mean()


def _paired(logs: pd.DataFrame, a: str, b: str, *, launches: pd.Index[str]) -> _Contrast:
    """Compare launch by launch; the pooled error is that of all points that these launches measured."""
    table = logs[logs["launch"].isin(launches)].pivot_table(index="launch", columns="point_id", values="log")
    table = table.dropna(axis="columns")
    pairs, degrees = table[a] - table[b], len(launches) - 1
    pooled = degrees * (table.shape[1] - 1)
    if pooled_is_better(degrees, pooled=pooled, launches=len(launches)):
        # Blocks of launches: what neither the point nor the launch explains is the error of one measurement.
        rest = table.sub(table.mean(), axis="columns").sub(table.mean(axis="columns"), axis="index")
        variance = float(((rest + table.to_numpy().mean()) ** 2).to_numpy().sum()) / pooled
        return _Contrast(float(pairs.mean()), (2 * variance / len(launches)) ** 0.5, pooled, "paired, pooled")
    return _Contrast(float(pairs.mean()), float(pairs.std()) / len(launches) ** 0.5, degrees, "paired")


def _separate(trials: pd.DataFrame, ours: pd.Series[float], theirs: pd.Series[float], *, of: str) -> _Contrast:
    """Compare the means of launches that have nothing to do with each other."""
    estimate, counts = float(ours.mean() - theirs.mean()), (len(ours), len(theirs))
    degrees = sum(counts) - 2 if min(counts) > 1 else 0
    pool = spread_of(trials, of)
    if min(counts) and len(pool) and pooled_is_better(degrees, pooled=pool["degrees"].iloc[0], launches=min(counts)):
        error = float(pool["spread"].iloc[0]) * (1 / counts[0] + 1 / counts[1]) ** 0.5
        return _Contrast(estimate, error, int(pool["degrees"].iloc[0]), "pooled")
    if not degrees:
        return _Contrast(estimate, math.nan, 0, "none")
    variances = [float(series.var()) / len(series) for series in (ours, theirs)]
    parts = sum(variance**2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    welch = sum(variances) ** 2 / parts if parts else degrees
    return _Contrast(estimate, sum(variances) ** 0.5, welch, "welch")
