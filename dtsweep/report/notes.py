"""Notes on a report's numbers: models, intervals, windows, gradients, canaries and flags."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.canaries import WORLD
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.study import Study, launch_sigma
from dtsweep.inference.spread import POINT
from dtsweep.report.labels import model_columns, model_label
from dtsweep.report.next_step import run_with_launches
from dtsweep.report.remarks import Remark, remark
from dtsweep.results.statuses import CANARY_DRIFT, FLAG_MEANINGS
from dtsweep.text import half_of, is_wide, percent_up

if TYPE_CHECKING:
    import pandas as pd

_ENDS = {
    "precise": "at the half_width asked for",
    "enough": "at min_steps and min_seconds",
    "max_seconds": "at max_seconds",
    "max_steps": "at max_steps",
    "ended": "with the training loop",
}
"""Ends of a window by `stop_reason`, in words."""


def notes_on(study: Study, points: pd.DataFrame) -> list[Remark]:
    """Say how the numbers of a report came about.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.

    Returns:
        Remarks; none where there are no points.
    """
    if points.empty:
        return []
    trials = without_canaries(study.frame)
    measured = trials[trials["status"] == "ok"]
    points = points[points["meets"].fillna(value=False)]
    remarks = [
        *_models(points),
        *_intervals(points, run=run_with_launches(study)),
        *_noise(study, points),
        *_switches(measured),
        *_exchange(measured),
    ]
    if points["compression_error"].notna().any():
        remarks.append(remark("compression_error"))
    if counts := counts_of(measured["stop_reason"].map(lambda end: _ENDS.get(end, end))):
        remarks.append(remark("window_ends", ends=counts))
    remarks += _canaries(study.canaries)
    if counts := counts_of(trials["flags"].explode()):
        meanings = {flag: FLAG_MEANINGS[flag] for flag in counts if flag in FLAG_MEANINGS}
        remarks.append(remark("flags", counts=counts, meanings=meanings))
    return remarks


def counts_of(column: pd.Series[Any]) -> dict[str, int]:
    """Count values, the most frequent first."""
    return {str(value): int(count) for value, count in column.value_counts().items()}


def _models(points: pd.DataFrame) -> list[Remark]:
    """Name the models, if there are several."""
    models = points.drop_duplicates(["workload", "model_digest"])
    if len(models) < 2:
        return []
    names = model_columns(points)
    labels = [model_label(row, names) for _, row in models.iterrows()]
    return [remark("models", count=len(models), models=labels)]


def _intervals(points: pd.DataFrame, *, run: str) -> list[Remark]:
    """Say what intervals are over, and how many points have them within one launch, or none."""
    known = points[points["latency_s_low"].notna()]
    if known.empty:
        return []
    remarks = [remark("interval")]
    if within := int((known["interval"] == "launch").sum()):
        remarks.append(remark("interval_within", count=within, points=len(known), run=run))
    if unknown := int(points["latency_s"].notna().sum()) - len(known):
        remarks.append(remark("interval_unknown", count=unknown))
    return remarks


def _exchange(trials: pd.DataFrame) -> list[Remark]:
    """Give the reasons for trials without an exchange share."""
    empty = trials[trials["comm_share"].isna()]
    alone = (empty["workers"] == 1) & empty["comm_reason"].isna()
    reasons = counts_of(empty[~alone]["comm_reason"].astype("object").fillna("no reason stored"))
    if len(empty) == len(trials) and not reasons:
        return []
    if alone.any():
        reasons = {"one worker": int(alone.sum()), **reasons}
    return [remark("no_exchange_share", reasons=reasons)] if reasons else []


def _canaries(canaries: pd.DataFrame) -> list[Remark]:
    """Say what canaries ran, the largest drift, and the sessions that drifted or may have."""
    if canaries.empty:
        return []
    drifts = canaries.dropna(subset=["drift"]).sort_values("drift", key=abs)
    drift = "unknown, as none has two"
    if len(drifts):
        drift = _drift(drifts.iloc[-1])
    sessions, worlds = canaries["session"].nunique(), len(canaries.drop_duplicates(WORLD))
    remarks = [remark("canaries", sessions=sessions, worlds=worlds, drift=drift)]
    drifted = canaries[canaries["flagged"].fillna(value=False)]
    if len(drifted):
        names = drifted["session"].astype(str).unique().tolist()
        count = int(drifted["trials"].sum())
        remarks.append(
            remark(
                "canaries_drifted",
                limit=CANARY_DRIFT,
                sessions=len(names),
                trials=count,
                names=names,
            )
        )
    return remarks


def _drift(session: pd.Series[Any]) -> str:
    size, half = abs(session["drift"]), half_of(session, "drift")
    if is_wide(size, size - half, size + half):
        return f"at most {percent_up(size + half)}"
    words = f"{size * 100:.1f}"
    if math.isfinite(half):
        words += f" ± {half * 100:.1f}"
    return f"{words} %"


def _switches(measured: pd.DataFrame) -> list[Remark]:
    """Say that launches of a point ran below different numbers of Slurm's switches."""
    counts = measured.groupby([*POINT], dropna=False)["switches"].nunique()
    if not (counts > 1).any():
        return []
    return [remark("switches", count=int((counts > 1).sum()))]


def _noise(study: Study, points: pd.DataFrame) -> list[Remark]:
    """State how much launches of a point differ, in each environment where they show it."""
    if len(points) < 2 or points["launches"].max() == 1:
        return []
    spreads = launch_sigma(study)
    spreads = spreads[(spreads["degrees"] > 0) & (spreads["spread"] > 0)]
    return [
        remark("noise", where=f" in env_id {env_id}" if len(spreads) > 1 else "", sigma=spread)
        for env_id, spread in spreads["spread"].items()
    ]
