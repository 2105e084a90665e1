"""Tests of a later run against an earlier one, adjusted for the number of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.launches import check_asked, joined_cautions
from dtsweep.inference.contrasts import Rows, half_width_of, launch_degrees_of, logarithms_of
from dtsweep.inference.power import POWER_Z, detectable
from dtsweep.inference.spread import POINT, Launches
from dtsweep.inference.variance import (
    Numbers,
    VarianceComponents,
    VarianceEstimate,
    pool_unpaired,
    pooled_is_better,
)
from dtsweep.inference.verdicts import Reason, Verdict
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.05
"""Largest probability of any wrong difference in a family of comparisons."""

RUN_SIGMA = 0.02
"""Assumed standard deviation between runs without a change, as a share, where too few runs say it.

It is common to all points of a run: another day, another neighbour on the machine.
"""

_RUN_Z = 2.1
"""Standard deviations of two runs' difference beyond which it is no noise."""

_FEWEST_POINTS = 4
"""Points of a run from which on their median shows what all of them have in common."""

COLUMNS = (
    *POINT,
    "of",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "p_adjusted",
    "verdict",
    "verdict_reason",
    "is_apart",
    "is_worse",
    "is_regression",
    "detectable_ratio",
    "launches_base",
    "launches_new",
    "caution",
)


def regressions(
    base: pd.DataFrame,
    new: pd.DataFrame,
    *,
    of: str | Sequence[str],
    threshold: float,
    drift: float = 0.0,
    run_sigma: float = 0.0,
) -> pd.DataFrame:
    """Compare the points of an earlier run with those of a later run.

    The test is Student's t on logarithms of launch means.

    Under the hypothesis that nothing has changed, the launches of both are launches of one job. So
    both show how far these differ, also where one of the two has a single launch. The
    between-launch variance is pooled over the points as in `difference`. All comparisons that could
    be tested are one family: Holm's method keeps the probability of any wrong "slower" or "faster"
    in it at 5 %, however the comparisons depend on each other (1979). A single launch may have met
    a machine that had drifted. A difference within the drift is then not significant, and intervals
    are wider by the drift.

    Runs differ by more than their launches do, all points of a run alike. So a significant
    difference also has to be larger than `run_sigma` explains, or the point has to differ
    significantly from the median of its run's points, in the same direction.

    Args:
        base: trials of the earlier run, as `measured` gives them; `launch` is what counts as one
            draw.
        new: those of the later one, with equal `env_id` where they are of one machine.
        of: one of the rates and times that windows have an error of, or several.
        threshold: share by which a value must be worse to be a regression.
        drift: of the machine, as a share.
        run_sigma: standard deviation between runs without a change, as a share; 0 where a run is
            one draw, whose spread contains it.

    Returns:
        A row per point that both have, and `of`: `POINT`; `ratio`, of the later over the
        earlier, with `ratio_low` and `ratio_high`, its own 95 % interval;
        `p_value`, and `p_adjusted` by Holm; `verdict` on the later and `verdict_reason`, codes as
        in `difference`; `is_apart`, if the point differs from the other points of its run;
        `is_worse`, by the estimate by more than `threshold`; `is_regression`, if
        the verdict is slower as well; `detectable_ratio`, the smallest true ratio above 1 that is
        found with 80 % probability at the least level of the family; `launches_base`,
        `launches_new`; `caution`.

    Raises:
        SweepError: `of` has none of the rates and times that windows have an error of.
    """
    import pandas as pd

    if isinstance(of, str):
        of = [of]
    names = tuple(dict.fromkeys(of))
    check_asked(*names)
    tables = [_tests_of(base, new, of=name, drift=drift, run_sigma=run_sigma) for name in names]
    rows = pd.concat(tables, ignore_index=True)
    return _with_verdicts(rows, threshold=threshold, run_sigma=run_sigma)


def _with_verdicts(rows: pd.DataFrame, *, threshold: float, run_sigma: float) -> pd.DataFrame:
    """Add the verdicts of a family of comparisons."""
    tested = rows["p_value"].notna()
    rows["p_adjusted"] = np.nan
    rows.loc[tested, "p_adjusted"] = _holm(rows.loc[tested, "p_value"].to_numpy("float64"))
    is_rate = rows["of"] == "samples_per_s"
    level = _LEVEL / max(1, int(tested.sum()))
    rows["is_apart"] = _are_apart(rows)
    run_half = _RUN_Z * 2**0.5 * run_sigma
    own_half = rows["error"] * students_t(rows["degrees"], level=level) + rows["drifted"]
    is_beyond_runs = rows["estimate"].abs() > np.hypot(run_half, own_half)
    if not run_sigma:
        is_beyond_runs[:] = True
    significant = ((rows["p_adjusted"] <= _LEVEL) & is_beyond_runs) | rows["is_apart"]
    worse = (rows["estimate"] < 0) == is_rate
    codes = [Verdict.UNKNOWN.value, Verdict.UNDECIDED.value, Verdict.SLOWER.value]
    rows["verdict"] = np.select([~tested, ~significant, worse], codes, Verdict.FASTER.value)
    rows["verdict_reason"] = rows["missing"].astype(object).where(~tested, None)
    rows["is_worse"] = np.where(
        is_rate, rows["ratio"] < 1 - threshold, rows["ratio"] > 1 + threshold
    )
    rows["is_regression"] = (rows["verdict"] == Verdict.SLOWER) & rows["is_worse"]
    counts = rows.groupby(["of", "env_id"], dropna=False)["p_value"].transform("count")
    # Where the median of many points shows what a run has in common, the noise of runs hides
    # nothing of a single one.
    by_run = np.where(counts < _FEWEST_POINTS, (_RUN_Z + POWER_Z) * 2**0.5 * run_sigma, 0.0)
    own = detectable(rows["error"], rows["degrees"], level=level)
    logs = np.hypot(own, by_run) + rows["drifted"]
    return rows.assign(detectable_ratio=np.exp(logs))[list(COLUMNS)]


def _are_apart(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """True where a point differs significantly from what its run's points have in common.

    It does so in the direction in which it differs from the earlier run.
    """
    from scipy.special import stdtr

    columns = ["apart", "apart_half_width", "apart_degrees"]
    rows = rows.astype(dict.fromkeys(columns, "float64"))
    errors = rows["apart_half_width"] / students_t(rows["apart_degrees"])
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = (rows["apart"].abs() - rows["drifted"]).clip(lower=0)
        p_values: Numbers = np.asarray(2 * stdtr(rows["apart_degrees"], -(beyond / errors)), float)
    is_tested = ~np.isnan(p_values)
    adjusted = np.ones(len(rows))
    adjusted[is_tested] = _holm(p_values[is_tested])
    return np.asarray((adjusted <= _LEVEL) & (rows["apart"] * rows["estimate"] > 0))


def _holm(p_values: Numbers) -> Numbers:
    """Adjust p-values to the number of comparisons by Holm's method.

    If each adjusted value of at most 0.05 is called significant, the risk of any wrong one is 5 %.

    >>> _holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = p_values.argsort(kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(factors * p_values[order]))
    return adjusted


def _tests_of(
    base: pd.DataFrame, new: pd.DataFrame, *, of: str, drift: float, run_sigma: float
) -> pd.DataFrame:
    """Rows of one quantity, without the columns that depend on the family."""
    import pandas as pd
    from scipy.special import stdtr

    columns = [*POINT, "launch", "caution", of, f"{of}_error"]
    sides = [base[columns].assign(side="base"), new[columns].assign(side="new")]
    cautions = [
        side.groupby(list(POINT), dropna=False)["caution"].first().reset_index() for side in sides
    ]
    pairs = cautions[0].merge(cautions[1], on=list(POINT), suffixes=("_base", "_new"))
    words = zip(pairs.pop("caution_base"), pairs.pop("caution_new"), strict=True)
    pairs["caution"] = [joined_cautions(pair) for pair in words]
    trials = pd.concat(sides).dropna(subset=[of])
    trials = trials.assign(
        point_id=trials["side"] + " " + trials["point_id"],
        launch=trials["side"] + " " + trials["launch"],
    )
    names = ["estimate", "half_width", "degrees", "launches_base", "launches_new"]
    names += ["apart", "apart_half_width", "apart_degrees"]
    tables = [
        _in_environment(environment, of)[[*POINT, *names]]
        for _, environment in trials.groupby("env_id", dropna=False)
    ]
    if tables:
        estimates = pd.concat(tables)
    else:
        estimates = pd.DataFrame(columns=[*POINT, *names])
    rows = pairs.merge(estimates, how="left", on=list(POINT)).assign(of=of)
    counts = rows[["launches_base", "launches_new"]].astype("float64").fillna(0).astype("int64")
    missing = np.where(
        counts["launches_base"] == 0, Reason.NOT_MEASURED.value, Reason.ONE_LAUNCH_EACH.value
    )
    drifted = np.where(counts.min(axis="columns") == 1, np.log1p(drift), 0.0)
    rows = rows.assign(missing=missing, drifted=drifted, **counts)
    rows = rows.astype(dict.fromkeys(["estimate", "half_width", "degrees"], "float64"))
    errors = rows["half_width"] / students_t(rows["degrees"])
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = (rows["estimate"].abs() - rows["drifted"]).clip(lower=0)
        p_values = 2 * stdtr(rows["degrees"], -(beyond / errors))
    # Intervals contain the noise between runs.
    half_width = np.hypot(rows["half_width"], 1.96 * 2**0.5 * run_sigma) + rows["drifted"]
    # Equal values of launches that are all equal differ by nothing.
    return rows.assign(
        ratio=np.exp(rows["estimate"]),
        ratio_low=np.exp(rows["estimate"] - half_width),
        ratio_high=np.exp(rows["estimate"] + half_width),
        error=errors,
        p_value=p_values.mask((errors == 0) & (beyond == 0), 1.0),
    )


def _in_environment(trials: pd.DataFrame, of: str) -> pd.DataFrame:
    """Estimate the differences of points of one machine that both runs measured."""
    # Runs never share a cycle: their own windows count.
    launches = logarithms_of(trials, of, in_turn=False)
    rows = launches.points.assign(row=range(len(launches.points)))
    sides = rows["point_id"].str.partition(" ")
    rows = rows.assign(side=sides[0], point_id=sides[2])
    pairs = rows[rows["side"] == "base"].merge(
        rows[rows["side"] == "new"], on=list(POINT), suffixes=("_base", "_new")
    )
    base, new = (pairs[f"row_{side}"].to_numpy("int64") for side in ("base", "new"))
    half_width, degrees, _ = _half_widths(launches, base, new, pool=launches.unpaired_pool)
    return pairs.assign(
        estimate=launches.point_means[new] - launches.point_means[base],
        half_width=half_width,
        degrees=degrees,
        launches_base=launches.counts[base],
        launches_new=launches.counts[new],
        **_apart(launches, base, new),
    )


def _apart(launches: Launches, base: Rows, new: Rows) -> dict[str, Numbers | float]:
    """Differences without what points of a launch have in common: the median of their shifts."""
    columns = ("apart", "apart_half_width", "apart_degrees")
    if len(base) < _FEWEST_POINTS:
        return dict.fromkeys(columns, np.nan)
    levels = np.full(len(launches.means), np.nan)
    levels[base] = levels[new] = (launches.point_means[base] + launches.point_means[new]) / 2
    shifts = launches.means - levels[:, None]
    has_points = (~np.isnan(shifts)).sum(axis=0) >= _FEWEST_POINTS
    common = np.zeros(shifts.shape[1])
    common[has_points] = np.nanmedian(shifts[:, has_points], axis=0)
    centred = Launches(launches.points, launches.means - common, launches.within_variance)
    half_width, degrees, _ = _half_widths(centred, base, new, pool=_centred_pool(centred))
    estimate = centred.point_means[new] - centred.point_means[base]
    return dict(zip(columns, (estimate, half_width, degrees), strict=True))


def _centred_pool(launches: Launches) -> VarianceComponents | None:
    """Between-launch variance of launches whose common shifts were removed."""
    is_pooled = (launches.counts > 1) & ~np.isnan(launches.within_variance)
    degrees = (launches.counts[is_pooled] - 1).astype("float64")
    shared = int(launches.is_measured[is_pooled].any(axis=0).sum())
    # Each launch but one of a run has lost a degree to its common shift.
    launch_degrees = int(degrees.sum()) - max(0, shared - 2)
    if launch_degrees < 1:
        return None
    return pool_unpaired(
        launches.residual_ss[is_pooled],
        degrees,
        launches.within_variance[is_pooled],
        launch_degrees=launch_degrees,
    )


def _half_widths(
    launches: Launches, base: Rows, new: Rows, *, pool: VarianceComponents | None
) -> tuple[Numbers, Numbers, Numbers]:
    """Apply `half_width_of` to the differences, with the common variance of both sides."""
    counts = launches.counts
    degrees = counts[base] + counts[new] - 2
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = (launches.residual_ss[base] + launches.residual_ss[new]) / degrees
        variance *= 1 / counts[base] + 1 / counts[new]
        return half_width_of(
            pool,
            VarianceEstimate(variance, np.asarray(degrees, dtype=np.float64)),
            pooled=pooled_is_better(degrees, pooled=launch_degrees_of(pool), launches=degrees + 1),
            within_variance=launches.within_variance,
            total=lambda variances: (variances / counts)[base] + (variances / counts)[new],
        )
