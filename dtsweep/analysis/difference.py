"""Ratio of two points with an interval over launches, and the verdict on it.

The logarithms of the launch means are compared. The method depends on the launches, on whether
windows know their own error, and on how far launches of one point differ:

- `in_turn`: by the sessions that measured both in turn, where there are some. It is the ratio
  under equal conditions (`inference.turns`), without the drift between their windows.
- `paired`: launch by launch, where two or more launches measured both points (or the only
  launch of one of them did, and other points show how far points of a launch differ). Effects
  of a launch then cancel out. This is so for points of one world, which a session measures one
  after the other.
- `welch`: Welch's t, where each point has launches of its own, at least two. A single launch is
  taken to vary as the other point's do, if those vary more than the other points' launches.
- `paired_pooled` and `pooled`: as these two, with the between-launch variance pooled over all
  points of the environment (of pairs: over the points that share launches). This is so where
  the pool has at least twice the degrees of freedom, and where a point has one launch, unless
  launches of the two differ significantly more than those of the other points. Each point adds
  its within-launch variance, and its own launches moderate the sum.
- `none`: too few launches; there is no interval.

The drift that the canaries show widens the interval if one of the two has a single launch, or
if the points have launches of their own and those of one followed each other
(`adjacent_launches`): a drift is then no noise that more launches average out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.launches import check_asked
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.errors import SweepError
from dtsweep.inference.contrasts import contrasts
from dtsweep.inference.power import detectable, untested_because
from dtsweep.inference.spread import POINT, Launches, of_environment
from dtsweep.inference.verdicts import Method, Reason, Verdict

if TYPE_CHECKING:
    import pandas as pd


def difference(
    frame: Frame,
    a: str,
    b: str,
    *,
    of: str | Sequence[str] = ("samples_per_s", "latency_s"),
    zone: float | None = None,
) -> pd.DataFrame:
    """Compare two points over launches: by throughput and latency, or by other columns.

    A point is `faster` or `slower` if the interval of the ratio does not hold 1. The two are
    `equal` if the interval lies within the indifference zone, and `undecided` if neither is so.
    Intervals have the confidence of the study's question, corrected for its looks; of a plain grid
    95 %.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it with canaries, or a study of it.
        a: a `point_id`.
        b: another.
        of: one of `ASKED`, or several.
        zone: indifference zone, as a share: ratios up to 1 + zone, or down to its inverse, count
            as equal. By default that of the study's question, or 3 %.

    Returns:
        One row per environment that measured both, each number of `hosts` of a with each of b
        (`hosts_a`, `hosts_b`), and `of`: `ratio`, of a's value to b's (null where one is
        unknown), with `ratio_low` and `ratio_high`, its interval; `level`, the two-sided
        significance level of that; `zone`; `verdict` on a and, where that is unknown,
        `verdict_reason` (`dtsweep.inference.verdicts`); `method`, as above; `detectable_ratio`, the
        smallest true ratio that is found with probability 0.8; `launches_a`, `launches_b`, those
        with a value; `caution_a`, `caution_b`, as in `over_launches`; `env_id`.

    Raises:
        SweepError: a point was not measured, or the two never in one environment; `of` has none of
            `ASKED`; the zone is no share.
    """
    import pandas as pd

    if isinstance(of, str):
        of = [of]
    names = tuple(dict.fromkeys(of))
    check_asked(*names)
    study = study_of(frame)
    asked = _Asked(level=study.level, zone=study.zone if zone is None else zone)
    if not 0 <= asked.zone < 1:
        raise SweepError(
            f"the indifference zone {asked.zone:g} must be at least 0 and below 1: a share, such "
            "as 0.03"
        )
    rows = [
        row
        for trials in _shared_environments(study.trials, a, b)
        for name in names
        for row in _rows_of(study, trials, a, b, of=name, asked=asked)
    ]
    return pd.DataFrame(rows).astype({"verdict_reason": object})


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """Requirements on a verdict."""

    level: float
    """Two-sided significance level."""
    zone: float
    """Indifference zone, as a share."""


def _shared_environments(trials: pd.DataFrame, a: str, b: str) -> list[pd.DataFrame]:
    """Trials of each environment in which both points were measured."""
    for point in (a, b):
        if point not in set(trials["point_id"]):
            raise SweepError(
                f"no ok trial of point {point!r}; over_launches(frame).point_id lists what was "
                "measured"
            )
    shared = [
        environment
        for _, environment in trials.groupby("env_id", dropna=False)
        if {a, b} <= set(environment["point_id"])
    ]
    if not shared:
        raise SweepError(
            f"points {a!r} and {b!r} were measured in different environments (env_id); run both in "
            "one"
        )
    return shared


def _rows_of(
    study: Study, trials: pd.DataFrame, a: str, b: str, *, of: str, asked: _Asked
) -> list[dict[str, Any]]:
    """Rows of `difference`, for the trials of one environment."""
    env_id = trials["env_id"].iloc[0]
    launches = study.launches(env_id, of)
    drift = significant_drift(of_environment(study.canaries, env_id)) or 0.0
    of_pair = trials[trials["point_id"].isin([a, b])]
    is_adjacent = any("adjacent_launches" in flags for flags in of_pair["flags"].dropna())
    pair = of_pair.groupby(list(POINT), dropna=False, sort=False)[["caution"]].first()
    pair = pair.astype(object).where(pair.notna(), None)
    pair = pair.reset_index().astype({"env_id": object})
    pair = pair.merge(launches.points.reset_index(names="row"), how="left", on=list(POINT))
    rows_a, rows_b = (pair[pair["point_id"] == point].to_dict("records") for point in (a, b))
    rows = [
        {"env_id": row_a["env_id"], "hosts_a": row_a["hosts"], "hosts_b": row_b["hosts"], "of": of}
        | _row(
            launches,
            row_a["row"],
            row_b["row"],
            asked=asked,
            drift=drift,
            is_adjacent=is_adjacent,
        )
        | {"caution_a": row_a["caution"], "caution_b": row_b["caution"]}
        for row_a in rows_a
        for row_b in rows_b
    ]
    return [row | _verdict(row, of=of) for row in rows]


def _row(
    launches: Launches, a: float, b: float, *, asked: _Asked, drift: float, is_adjacent: bool
) -> dict[str, Any]:
    """Row of `difference` for two rows of `launches`; nan where a point was not measured."""
    counts = [0 if np.isnan(row) else int(launches.counts[int(row)]) for row in (a, b)]
    estimate = half_width = least = np.nan
    method = Method.NONE
    if all(counts):
        contrast = contrasts(launches, np.array([int(a)]), np.array([int(b)]))
        drift_log = 0.0
        drift_stays = is_adjacent and not contrast.paired[0, 0]
        if (min(counts) == 1 or drift_stays) and not contrast.in_turn[0, 0]:
            drift_log = float(np.log1p(drift))
        estimate = float(contrast.estimate[0, 0])
        half_width = float(contrast.half_width_at(asked.level)[0, 0]) + drift_log
        method = contrast.method(0, 0)
        errors, degrees = contrast.error[0, 0], contrast.degrees[0, 0]
        least = float(detectable(errors, degrees, level=asked.level)) + drift_log
    with np.errstate(over="ignore"):
        logs = [estimate, estimate - half_width, estimate + half_width, least]
        ratio, low, high, smallest = np.exp(logs).tolist()
    return {
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "level": asked.level,
        "zone": asked.zone,
        "method": method,
        "detectable_ratio": smallest,
        "launches_a": counts[0],
        "launches_b": counts[1],
    }


def _verdict(row: dict[str, Any], *, of: str) -> dict[str, Verdict | Reason | None]:
    """Verdict on the first of two points, and the reason where it is unknown."""
    low, high, zone = row["ratio_low"], row["ratio_high"], row["zone"]
    verdict, reason = Verdict.UNDECIDED, None
    if np.isnan(low):
        verdict = Verdict.UNKNOWN
        reason = untested_because([row["launches_a"], row["launches_b"]])
    elif low > 1 or high < 1:
        is_greater, is_rate = low > 1, of == "samples_per_s"
        verdict = Verdict.FASTER if is_greater == is_rate else Verdict.SLOWER
    elif low * (1 + zone) >= 1 and high <= 1 + zone:
        verdict = Verdict.EQUAL
    return {"verdict": verdict, "verdict_reason": reason}
