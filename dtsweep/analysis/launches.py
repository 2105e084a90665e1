"""Selects the measured trials, and combines the launches of each point into one row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.errors import SweepError
from dtsweep.inference.contrasts import half_width_of, launch_degrees_of
from dtsweep.inference.spread import POINT, Launches, launches_of
from dtsweep.inference.variance import (
    WITHIN_DEGREES,
    Numbers,
    VarianceEstimate,
    pooled_is_better,
)
from dtsweep.measure.statistics import students_t
from dtsweep.results.statuses import CAUTIONS
from dtsweep.results.store import ORDER
from dtsweep.sweep.goal import FINAL_LOSS, TO_LOSS
from dtsweep.sweep.modes import update_kind
from dtsweep.sweep.point_axes import AXES

if TYPE_CHECKING:
    import pandas as pd


_SAME_DEVICE = ("env_id", "precision", "cpus_per_worker")
"""A peak that was measured holds for these: hardware and software, number format, threads."""


def by_best_peak(trials: pd.DataFrame) -> pd.DataFrame:
    """Relate what devices did to the best peaks of all trials, where peaks are measured.

    Each process measures its own peak, once: those of one machine lie some percent apart, and lower
    where workers with several threads measure at once. Two points of a sweep would differ by that
    and not by what they compute.

    Returns:
        The same, `mfu`, `hfu` and `compute_share` times the trial's measured peak over the highest
        of its environment, precision and CPUs per worker; `memory_share` the same with
        `peak_bytes_per_s`, of as many workers, who share a memory. The peaks themselves stay those
        of the trial.
    """
    peaks = trials["peak_flops_per_s"].where(trials["peak_source"] == "measured")
    computing = _share_of_best(peaks, [trials[name] for name in _SAME_DEVICE])
    moving = _share_of_best(
        trials["peak_bytes_per_s"], [trials[name] for name in (*_SAME_DEVICE, "workers")]
    )
    shares = {
        "mfu": computing,
        "hfu": computing,
        "compute_share": computing,
        "memory_share": moving,
    }
    return trials.assign(**{name: trials[name] * share for name, share in shares.items()})


def _share_of_best(peaks: pd.Series[float], groups: list[pd.Series[Any]]) -> pd.Series[float]:
    """Each peak as a share of the highest of its group; 1 where it is unknown."""
    return (peaks / peaks.groupby(groups, dropna=False).transform("max")).fillna(1.0)


_ASKED = ("samples_per_s", "latency_s", "step_mean_s", "step_p50_s", "step_p95_s", "step_p99_s")
"""Rates and times that can be asked for by name: what `measured` has a standard error of."""

_AGREEMENT_LEVEL = 0.3
"""Significance level at which launches of a share vary more than their windows explain (F test)."""

_OF_A_STEP = ("comm_share", "exchange_share", "wait_share", "data_share")
_WITH_ERRORS = (*_ASKED, *_OF_A_STEP)
_SHARES = (
    "mfu",
    "hfu",
    *_OF_A_STEP,
    "compute_share",
    "memory_share",
    "launch_share",
    "device_idle_low",
    "device_idle_high",
)
_USED = (
    "energy_j_per_sample",
    "power_w",
    "bytes_sent_per_step",
    "compression_error",
    "staleness_mean",
    "dropped_share",
    "bubble_share",
    "bubble_expected",
)
_MONEY = ("usd_per_hour", "cost_usd")
"""Cost of nodes; null where they have no price."""

PER_SAMPLES = "usd_per_million_samples"
"""Price of training, derived from `usd_per_hour` and `samples_per_s`."""

NORMAL_95 = 1.96
"""Half-width of a 95 % interval, in standard errors of a normal distribution."""

_LEARNING = (FINAL_LOSS, "trained_at_least_s")

_MEANS = (*_ASKED, "tokens_per_s", *_SHARES, *_USED, *_MONEY, PER_SAMPLES, *_LEARNING, *TO_LOSS)
_MODEL = ("model_digest", "parameters", "flops_per_sample", "optimizer_class")
_HOW = ("devices", "backend", "harness", "cpus_per_worker", "command")
_REASONS = ("gradients_reason", "samples_reason")
_FACTS = (
    "semantics",
    "global_batch",
    "data_parallel",
    "model_parallel",
    "samples_per_update",
    "target_loss",
    "loss_by",
    *_HOW,
    *_MODEL,
    *_REASONS,
)
_WITH_INTERVAL = {
    **dict.fromkeys(("latency_s", "samples_per_s", *_ASKED[2:]), True),
    PER_SAMPLES: True,
    **dict.fromkeys(TO_LOSS, True),
    **dict.fromkeys(_OF_A_STEP, False),
}
"""Columns with an interval over launches, and True if their between-launch variance is relative."""


def setting_columns(frame: pd.DataFrame) -> list[str]:
    """Name the columns that were set, not measured.

    Returns:
        The fields of a point, `workload` and its fields, in the frame's words: two rows that agree
        in all of them differ at most in where and when they ran.
    """
    fields = [name for name in frame.columns if name.startswith("workload_")]
    names = ("workload", *AXES, "environment", *fields)
    return [name for name in names if name in frame.columns and name != "workload_digest"]


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Give each row as a dict by column; null is None."""
    columns = {
        # pandas takes None here; its stubs do not.
        str(name): frame[name].to_numpy(object, na_value=None).tolist()  # type: ignore[call-overload]
        for name in frame
    }
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def without_canaries(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out the canaries, which watch the machine."""
    return frame[frame["role"] != "canary"]


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Select what was measured, one row per launch of a point.

    Returns:
        The `ok` trials without canaries, the oldest first, with `launch` (the session, or else the
        trial itself), `mfu` made comparable (`by_best_peak`), and `caution` of its point.
    """
    trials = frame[(frame["status"] == "ok") & (frame["role"] != "canary")]
    trials = trials.sort_values(ORDER, kind="stable", na_position="first", ignore_index=True)
    bounds = [f"{name}_{end}" for name in _WITH_ERRORS for end in ("low", "high", "error")]
    # astype leaves every column in memory of its own, which pandas warns of; a copy is in one
    # piece.
    numbers = [*_WITH_ERRORS, *bounds, *_SHARES, *_MONEY, "tokens_per_s"]
    trials = trials.astype(dict.fromkeys(numbers, "float64")).copy()
    derived = {**_per_samples(trials), **_to_loss(trials)}
    trials = _with_columns(by_best_peak(trials), derived)
    launch = trials["session"].where(trials["session"].notna(), trials["trial_id"])
    return _with_columns(trials, {"launch": launch, "caution": _cautions(trials)})


def _per_samples(trials: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """USD for a million samples, with the interval and the error that the rate has."""
    rate = trials["samples_per_s"]
    usd_per_s = trials["usd_per_hour"] / 3600
    value = usd_per_s / rate * 1e6
    return {
        PER_SAMPLES: value,
        f"{PER_SAMPLES}_low": usd_per_s / trials["samples_per_s_high"] * 1e6,
        f"{PER_SAMPLES}_high": usd_per_s / trials["samples_per_s_low"] * 1e6,
        f"{PER_SAMPLES}_error": value * trials["samples_per_s_error"] / rate,
    }


def _to_loss(trials: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Time, samples, workers' time and USD of a training to its target, with their intervals.

    Each has the error by the time between two evaluations, as a share. Null for all launches of a
    point of which one is censored: then `trained_at_least_s` is the longest of its trainings.
    """
    points = [trials[name] for name in POINT]
    is_bound = trials["is_censored"].astype("boolean").fillna(value=False)
    is_bound = is_bound.groupby(points, dropna=False).transform("any").astype("bool")
    trained = trials["time_to_loss_s"].astype("float64")
    longest = trained.groupby(points, dropna=False).transform("max")
    seconds = trained.mask(is_bound)
    share = trials["time_to_loss_s_error"].astype("float64") / seconds
    values = {
        "time_to_loss_s": seconds,
        "samples_to_loss": trials["samples_to_loss"].astype("float64").mask(is_bound),
        "worker_s_to_loss": seconds * trials["workers"].astype("float64"),
        "usd_to_loss": seconds * trials["usd_per_hour"] / 3600,
    }
    columns = {"trained_at_least_s": longest.where(is_bound)}
    for name, value in values.items():
        columns[name] = value
        columns[f"{name}_error"] = value * share
        columns[f"{name}_low"] = value * (1 - NORMAL_95 * share)
        columns[f"{name}_high"] = value * (1 + NORMAL_95 * share)
    return columns


def _cautions(trials: pd.DataFrame) -> pd.Series[str]:
    """Flags on any launch of each trial's point that put its numbers in doubt."""
    words = trials["flags"].map(lambda flags: "" if flags is None else " ".join(flags))
    words = words.astype(object)
    points = trials.groupby(list(POINT), dropna=False).ngroup()
    is_doubtful = points.isin(points[words != ""])
    joined = words[is_doubtful].groupby(points[is_doubtful]).transform(joined_cautions)
    return words.where(~is_doubtful, joined)


def _with_columns(trials: pd.DataFrame, columns: Mapping[str, pd.Series[Any]]) -> pd.DataFrame:
    """Assign columns all at once: pandas warns of many small ones."""
    import pandas as pd

    return pd.concat(
        [trials.drop(columns=list(columns), errors="ignore"), pd.DataFrame(columns)], axis="columns"
    )


def check_asked(*names: str) -> None:
    """Refuse columns that launches can't be compared by.

    Raises:
        SweepError: a name is none of `_ASKED`.
    """
    for name in names or ("",):
        if name not in _ASKED:
            raise SweepError(
                f"launches can't be compared by {name!r}; use one of {', '.join(_ASKED)}"
            )


def points_of(trials: pd.DataFrame) -> pd.DataFrame:
    """Combine the launches of each point into one row.

    The trials are as `measured` gives them; `over_launches` describes the columns.
    """
    # Points are numbered in the order of their first trials: three keys are slow to group by.
    numbers = trials.groupby(list(POINT), dropna=False, sort=False).ngroup()
    groups = trials.groupby(numbers)
    fact_columns = [column for column in _FACTS if column in trials.columns]
    points = trials.loc[~numbers.duplicated(), list(POINT)].reset_index(drop=True)
    points = points.join(groups[[*setting_columns(trials), *fact_columns]].first())
    points = points.assign(update_kind=list(map(update_kind, points["semantics"], points["sync"])))
    means = groups[list(_MEANS)].mean()
    intervals = {
        name: _intervals(trials, numbers, name, relative=relative).reindex(points.index)
        for name, relative in _WITH_INTERVAL.items()
    }
    kinds = [intervals[name]["interval"] for name in _WITH_INTERVAL if _WITH_INTERVAL[name]]
    columns = {
        "launches": groups["launch"].nunique(),
        **{name: means[name] for name in _MEANS},
        "throughput_per_latency": means["samples_per_s"] / means["latency_s"],
        "memory_peak_bytes": groups["memory_peak_bytes"].max(),
        "trainings": groups["target_loss"].count(),
        "censored": groups["is_censored"].sum(),
        "interval": reduce(lambda kind, other: kind.where(kind.notna(), other), kinds),
    }
    for name, ends in intervals.items():
        columns |= {f"{name}_low": ends["low"], f"{name}_high": ends["high"]}
    columns["caution"] = groups["caution"].first()
    # Where all are null pandas makes numbers of them, which match no text.
    return _with_columns(points, columns).astype({"env_id": object}).copy()


def joined_cautions(words: Iterable[str]) -> str:
    """Write cautions in one text, each once, the gravest first.

    >>> joined_cautions(["drift", "", "unstable drift", "implausible"])
    'implausible drift unstable'
    """
    flags = set(" ".join(words).split())
    return " ".join(flag for flag in CAUTIONS if flag in flags)


def has_caution(rows: pd.DataFrame, cautions: Collection[str]) -> pd.Series[bool]:
    """True for rows with one of some cautions."""
    words = rows["caution"].map(lambda words: not set(words.split()).isdisjoint(cautions))
    return words.astype("bool")


def _intervals(
    trials: pd.DataFrame, numbers: pd.Series[int], name: str, *, relative: bool
) -> pd.DataFrame:
    """`low`, `high` and the kind of `interval`, by the number of the point."""
    launch_rows = trials[
        [*POINT, "launch", *(f"{name}{end}" for end in ("", "_low", "_high", "_error"))]
    ].dropna(subset=[name])
    numbers = numbers[launch_rows.index]
    groups = launch_rows.groupby(numbers)
    rows = (
        groups[[name, f"{name}_low", f"{name}_high"]]
        .mean()
        .set_axis(["mean", "low", "high"], axis=1)
    )
    rows[["half", "beyond", "pooled", "agrees"]] = np.nan
    for _, env_trials in launch_rows.groupby("env_id", dropna=False):
        half_widths = _half_widths(launches_of(env_trials, name, relative=relative))
        places = numbers[env_trials.index].unique()
        rows.loc[places, ["half", "beyond", "pooled", "agrees"]] = half_widths
    ends = rows[["mean", "low", "high"]]
    if relative:
        # On the scale of the half-widths, on which no end of a rate or a time is below 0.
        ends = ends.where(ends > 0).apply(np.log)
    mean, half, beyond = ends["mean"], rows["half"], rows["beyond"]
    below = mean - ends["low"]
    above = ends["high"] - mean
    if not relative:
        # Student's t of two or three launches would say less of a share than one launch does.
        half = half.mask(rows["agrees"] == 1, np.fmin(half, np.maximum(below, above)))
    several = groups["launch"].nunique() > 1
    low = (mean - np.hypot(below, beyond)).mask(several, mean - half)
    high = (mean + np.hypot(above, beyond)).mask(several, mean + half)
    if relative:
        is_own = ~several & ~(beyond > 0)
        low = np.exp(low).mask(is_own, rows["low"])
        high = np.exp(high).mask(is_own, rows["high"])
    kinds = (
        several.map({True: "launches", False: "launch"})
        .mask(rows["pooled"] == 1, "pooled")
        .where(low.notna(), None)
    )
    return rows.assign(low=low, high=high, interval=kinds)


def _half_widths(launches: Launches) -> Numbers:
    """Intervals of points over launches, and how they were obtained.

    Columns: half-width over several launches; half-width that the between-launch variance adds to a
    single launch; 1 where the variance is pooled; 1 where the launches vary no more than their
    windows explain.
    """
    from scipy.special import fdtrc

    counts, pool = launches.counts, launches.unpaired_pool
    degrees = np.maximum(counts - 1, 0).astype("float64")
    with np.errstate(invalid="ignore"):
        unpooled = VarianceEstimate(launches.residual_ss / degrees / counts, degrees)
    half_width, _, pooled = half_width_of(
        pool,
        unpooled,
        pooled=pooled_is_better(degrees, pooled=launch_degrees_of(pool), launches=counts),
        within_variance=launches.within_variance,
        total=lambda variances: variances / counts,
    )
    beyond = np.zeros(len(counts))
    if pool:
        beyond[pooled == 1] = students_t(pool.degrees) * max(0.0, pool.between_variance) ** 0.5
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = launches.residual_ss / degrees / launches.within_variance
    agrees = fdtrc(degrees, WITHIN_DEGREES, ratios) > _AGREEMENT_LEVEL
    return np.column_stack([half_width, beyond, pooled, agrees])
