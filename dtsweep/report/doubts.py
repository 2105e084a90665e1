"""Doubts that a report states before its tables: what to ignore, and what not to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtsweep.analysis.ladders import far_above_linear
from dtsweep.analysis.launches import has_caution, without_canaries
from dtsweep.analysis.objectives import MAXIMIZED, MINIMIZED
from dtsweep.analysis.study import Study
from dtsweep.report.labels import trial_label, trial_labels, varying_columns
from dtsweep.report.remarks import Remark, remark
from dtsweep.results.schema import IMPORTED

if TYPE_CHECKING:
    import pandas as pd

_MACHINE_COLUMNS = (
    "devices",
    "backend",
    "torch_version",
    "ray_version",
    "python_version",
    "dtsweep_version",
    "hosts",
    "partition",
    "switches",
    "harness",
)
"""Columns of trials in which two environments may differ."""


def doubts_on(study: Study, points: pd.DataFrame, *, varying: Sequence[str]) -> list[Remark]:
    """Make the remarks to read before any number of a report.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.
        varying: setting columns that have more than one value.

    Returns:
        Without points only the remark on imported rows that are not used.
    """
    not_used = _not_used(study.frame)
    if points.empty:
        return not_used
    measured = without_canaries(study.frame[study.frame["status"] == "ok"])
    return [
        *_implausible(measured, varying),
        *not_used,
        *_joined(measured),
        *_environments(measured),
    ]


def unsound_doubts(study: Study) -> list[Remark]:
    """Name the points that can't be recommended as sound, with the reason and what to do.

    Returns:
        Remarks on workers that exchange nothing, workers that load the same samples, rates far
        above linear, and rates that are unknown.
    """
    points = study.points
    varying = varying_columns(points)
    remarks = []
    separate = points[points["semantics"] == "not_exchanged"]
    for reason, rows in separate.groupby("gradients_reason", dropna=False, sort=False):
        workers = "- and ".join(str(size) for size in sorted(rows["workers"].unique()))
        remarks.append(remark("not_exchanged", workers=workers, reason=_because(reason)))
    same = points[has_caution(points, ["same_batches"])]
    for reason, rows in same.groupby("gradients_reason", dropna=False, sort=False):
        names = trial_labels(rows, varying)
        remarks.append(remark("same_samples", points=names, reason=_because(reason)))
    remarks += [
        remark(
            "above_linear",
            point=trial_label(row, varying),
            times=row["times"],
            base=row["base"],
            linear=row["workers"] / row["base"],
        )
        for row in far_above_linear(points).to_dict("records")
    ]
    unknown = points[points["samples_per_s"].isna() & points["samples_reason"].notna()]
    for reason, rows in unknown.groupby("samples_reason", sort=False):
        names = trial_labels(rows, varying)
        remarks.append(remark("samples_unknown", points=names, reason=_because(reason)))
    return remarks


def _because(reason: object) -> str:
    """Give a stored reason as the end of a clause; empty without one."""
    if not isinstance(reason, str) or not reason:
        return ""
    return f": {reason.rstrip('.')}"


def _implausible(trials: pd.DataFrame, varying: Sequence[str]) -> list[Remark]:
    """Name the numbers that can't all be true."""
    rows = trials[trials["implausible"].notna()]
    if rows.empty:
        return []
    lines = [f"{trial_label(row, varying)}: {row['implausible']}" for _, row in rows.iterrows()]
    return [remark("implausible", count=len(rows), trials=lines)]


def _not_used(frame: pd.DataFrame) -> list[Remark]:
    """Name imported rows whose numbers can't all be true: they are not used."""
    is_imported = frame["harness"] == IMPORTED
    rows = frame[is_imported & (frame["status"] != "ok") & frame["implausible"].notna()]
    if rows.empty:
        return []
    lines = [f"{row['imported_from']}: {row['implausible']}" for _, row in rows.iterrows()]
    return [remark("not_used", count=len(rows), rows=lines)]


def _joined(trials: pd.DataFrame) -> list[Remark]:
    """Say that imported rows count as measured in the environment of measured ones."""
    imported = trials[trials["harness"] == IMPORTED]
    measured = trials[trials["harness"] != IMPORTED]
    if not set(imported["env_id"]) & set(measured["env_id"]):
        return []
    return [remark("joined", count=len(imported), env_id=imported["env_id"].iloc[0])]


def _environments(trials: pd.DataFrame) -> list[Remark]:
    """Name the columns that have one value in each environment, but not the same in all."""
    groups = trials.groupby("env_id", dropna=False)
    if groups.ngroups < 2:
        return []
    constant = [name for name in _MACHINE_COLUMNS if groups[name].nunique(dropna=False).max() == 1]
    firsts = groups[constant].first().astype("object").fillna("unknown")
    differences = {
        name: "; ".join(f"{env_id}: {value}" for env_id, value in firsts[name].items())
        for name in constant
        if trials[name].nunique(dropna=False) > 1
    }
    return [remark("environments", count=groups.ngroups, differences=differences)]


def conditions_on(
    points: pd.DataFrame, where: str, *, minimize: Sequence[str], maximize: Sequence[str]
) -> list[Remark]:
    """State the objectives and the condition of frontiers, if they are not the default.

    Points that are left out are counted, and points for which a value is unknown.
    """
    remarks = []
    is_met = points["meets"].astype("boolean")
    if (*minimize, *maximize) != (*MINIMIZED, *MAXIMIZED):
        objectives = [f"{name} small" for name in minimize] + [f"{name} large" for name in maximize]
        remarks.append(remark("objectives", objectives=objectives))
        if missing := int((points["standing"].isna() & is_met.fillna(value=False)).sum()):
            remarks.append(remark("objectives_unknown", count=missing))
    if where and len(points):
        unmet = int((~is_met.fillna(value=True)).sum())
        remarks.append(remark("only_where", where=where, count=unmet))
        if unknown := int(is_met.isna().sum()):
            remarks.append(remark("where_unknown", where=where, count=unknown))
    return remarks
