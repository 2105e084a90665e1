"""Selects the measured trials, and combines the launches of each point into one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.utilization import by_best_peak
from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT, Launches, launches_of
from dtsweep.inference.variance import Known, Numbers, moderated, pooled_is_better
from dtsweep.measure.statistics import students_t
from dtsweep.results.statuses import CAUTIONS
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

ASKED = ("samples_per_s", "latency_s", "step_mean_s", "step_p50_s", "step_p95_s", "step_p99_s")
"""Rates and times that can be asked for by name: what `measured` has a standard error of."""

_OF_A_STEP = ("comm_share", "exchange_share", "wait_share", "data_share")
_KNOWN_WITHIN = (*ASKED, *_OF_A_STEP)
_SHARES = ("mfu", "hfu", *_OF_A_STEP, "compute_share", "memory_share", "launch_share")
_USED = (
    "energy_j_per_sample",
    "power_w",
    "bytes_sent_per_step",
    "compression_error",
    "staleness_mean",
)
_MEANS = (*ASKED, "tokens_per_s", *_SHARES, *_USED)
_MODEL = ("model_digest", "parameters", "flops_per_sample", "optimizer_class")
_FACTS = ("semantics", "global_batch", "devices", "backend", "harness", *_MODEL)
_WITH_INTERVAL = {"latency_s": True, "samples_per_s": True, **dict.fromkeys(_OF_A_STEP, False)}
"""Columns with an interval over launches, and True if their between-launch variance is relative."""


def setting_columns(frame: pd.DataFrame) -> list[str]:
    """Name the columns that say what was set, as against what was measured.

    Args:
        frame: trials or points.

    Returns:
        The fields of a point, `workload` and its fields, in the frame's words: two rows that agree
        in all of them differ at most in where and when they ran.
    """
    workload = [c for c in frame.columns if c.startswith("workload_") and c != "workload_digest"]
    return [c for c in ("workload", *AXES, "environment", *workload) if c in frame.columns]


def without_canaries(frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out the canaries, which watch the machine."""
    return frame[frame["role"] != "canary"]


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    """Select what was measured, one row per launch of a point.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        The `ok` trials without canaries, the oldest first, with `launch` (the session, or else the
        trial itself), `mfu` made comparable (`by_best_peak`), and `caution` of its point.
    """
    trials = frame[(frame["status"] == "ok") & (frame["role"] != "canary")]
    trials = trials.sort_values("started_at", kind="stable", na_position="first", ignore_index=True)
    bounds = [f"{name}_{end}" for name in _KNOWN_WITHIN for end in ("low", "high", "error")]
    # astype leaves every column in memory of its own, which pandas warns of; a copy is in one
    # piece.
    trials = trials.astype(
        dict.fromkeys([*_KNOWN_WITHIN, *bounds, *_SHARES, "tokens_per_s"], "float64")
    ).copy()
    trials = by_best_peak(trials)
    launch = trials["session"].where(trials["session"].notna(), trials["trial_id"])
    return _replaced(trials, {"launch": launch, "caution": _cautions(trials)})


def _cautions(trials: pd.DataFrame) -> pd.Series[str]:
    """Flags on any launch of each trial's point that put its numbers in doubt."""
    own = trials["flags"].map(lambda flags: "" if flags is None else " ".join(flags)).astype(object)
    numbers = trials.groupby(list(POINT), dropna=False).ngroup()
    doubtful = numbers.isin(numbers[own != ""])
    return own.where(~doubtful, own[doubtful].groupby(numbers[doubtful]).transform(joined_cautions))


def _replaced(trials: pd.DataFrame, columns: Mapping[str, pd.Series[Any]]) -> pd.DataFrame:
    """Assign columns all at once: pandas warns of many small ones."""
    import pandas as pd

    return pd.concat(
        [trials.drop(columns=list(columns), errors="ignore"), pd.DataFrame(columns)], axis="columns"
    )


def check_asked(*names: str) -> None:
    """Refuse columns that launches can't be compared by.

    Raises:
        SweepError: a name is none of `ASKED`.
    """
    for name in names or ("",):
        if name not in ASKED:
            raise SweepError(
                f"launches can't be compared by {name!r}; use one of {', '.join(ASKED)}"
            )


def points_of(trials: pd.DataFrame) -> pd.DataFrame:
    """Combine the launches of each point into one row.

    The trials are as `measured` gives them; `over_launches` describes the columns.
    """
    # Points are numbered in the order of their first trials: three keys are slow to group by.
    numbers = trials.groupby(list(POINT), dropna=False, sort=False).ngroup()
    groups = trials.groupby(numbers)
    kept = [*setting_columns(trials), *(c for c in _FACTS if c in trials.columns)]
    points = trials.loc[~numbers.duplicated(), list(POINT)].reset_index(drop=True)
    points = points.join(groups[kept].first())
    points["launches"] = groups["launch"].nunique()
    points[list(_MEANS)] = groups[list(_MEANS)].mean()
    points["throughput_per_latency"] = points["samples_per_s"] / points["latency_s"]
    points["memory_peak_bytes"] = groups["memory_peak_bytes"].max()
    points["interval"] = None
    for name, relative in _WITH_INTERVAL.items():
        found = _intervals(trials, numbers, name, relative=relative).reindex(points.index)
        points[[f"{name}_low", f"{name}_high"]] = found[["low", "high"]]
        if relative:
            points["interval"] = points["interval"].where(
                points["interval"].notna(), found["interval"]
            )
    points["caution"] = groups["caution"].first()
    # Where all are null pandas makes numbers of them, which match no text.
    return points.astype({"env_id": object})


def joined_cautions(words: Iterable[str]) -> str:
    """Write cautions in one text, each once, the gravest first.

    >>> joined_cautions(["drift", "", "unstable drift", "implausible"])
    'implausible drift unstable'
    """
    known = set(" ".join(words).split())
    return " ".join(flag for flag in CAUTIONS if flag in known)


def _intervals(
    trials: pd.DataFrame, numbers: pd.Series[int], name: str, *, relative: bool
) -> pd.DataFrame:
    """`low`, `high` and the kind of `interval`, by the number of the point."""
    known = trials[
        [*POINT, "launch", *(f"{name}{end}" for end in ("", "_low", "_high", "_error"))]
    ].dropna(subset=[name])
    numbers = numbers[known.index]
    groups = known.groupby(numbers)
    rows = (
        groups[[name, f"{name}_low", f"{name}_high"]]
        .mean()
        .set_axis(["mean", "low", "high"], axis=1)
    )
    rows[["half", "beyond", "pooled"]] = np.nan
    for _, there in known.groupby("env_id", dropna=False):
        found = _halves(launches_of(there, name, relative=relative))
        rows.loc[numbers[there.index].unique(), ["half", "beyond", "pooled"]] = found
    half = rows["half"]
    beyond = rows["beyond"]
    if relative:
        half, beyond = half * rows["mean"], beyond * rows["mean"]
    several = groups["launch"].nunique() > 1
    low = (rows["mean"] - np.hypot(rows["mean"] - rows["low"], beyond)).mask(
        several, rows["mean"] - half
    )
    high = (rows["mean"] + np.hypot(rows["high"] - rows["mean"], beyond)).mask(
        several, rows["mean"] + half
    )
    kinds = (
        several.map({True: "launches", False: "launch"})
        .mask(rows["pooled"] == 1, "pooled")
        .where(low.notna(), None)
    )
    return rows.assign(low=low, high=high, interval=kinds)


def _halves(launches: Launches) -> Numbers:
    """Intervals of points over launches, and how they were obtained.

    Columns: half of the interval over several launches, the factor that widens a single launch, and
    whether the variance is pooled.
    """
    counts = launches.counts
    pool = launches.apart
    own = np.maximum(counts - 1, 0).astype("float64")
    with np.errstate(invalid="ignore"):
        known = Known(launches.squares / own / counts, own)
    pooled = pooled_is_better(own, pooled=pool.counted if pool else 0, launches=counts) & ~np.isnan(
        launches.within
    )
    beyond = np.zeros(len(counts))
    if pool:
        expected = pool.variances(launches.within) / counts
        both = moderated(
            pool, expected, weight=1 / counts, within=launches.within / counts, own=known
        )
        known = Known(*(np.where(pooled, a, b) for a, b in zip(both, known, strict=True)))
        beyond[pooled] = students_t(pool.degrees) * max(0.0, pool.added) ** 0.5
    return np.column_stack([students_t(known.degrees) * known.variance**0.5, beyond, pooled])
