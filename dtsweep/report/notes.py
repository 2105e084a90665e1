"""Notes on a report's numbers, to read before trusting them: intervals, environments, windows, canaries, flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtsweep.analysis.canaries import WORLD
from dtsweep.report.text import count_of
from dtsweep.results.statuses import CANARY_DRIFT, FLAG_MEANINGS

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
    "harness",
)
"""Columns of trials in which two environments may differ."""


def notes_on(
    trials: pd.DataFrame, points: pd.DataFrame, *, canaries: pd.DataFrame, flags: Mapping[str, int]
) -> list[str]:
    """Write what to know before trusting the numbers of a report.

    Args:
        trials: one row per trial, without canaries.
        points: rows of `dtsweep.analysis.frontier`.
        canaries: rows of `dtsweep.analysis.canaries`.
        flags: trials by flag.

    Returns:
        One text per note; lines after its first explain it. Empty where there are no points.
    """
    if points.empty:
        return []
    measured = trials[trials["status"] == "ok"]
    on_points = (_interval_note(points), _probability_note(points))
    on_trials = (_environment_note(measured), _window_note(measured), _canary_note(canaries), _flag_note(flags))
    return [*filter(None, (*on_points, *on_trials))]


def _interval_note(points: pd.DataFrame) -> str:
    known = points[points["latency_s_low"].notna()]
    if known.empty:
        return ""
    one = int((known["interval"] == "launch").sum())
    within = "" if one == len(known) else f" for {one} of {count_of(len(known), 'point')}, else over launches"
    kind = f"; intervals are within one launch{within}." if one else " over launches."
    pooled = int(((known["interval"] == "pooled") & (known["launches"] == 1)).sum())
    widened = f" {count_of(pooled, 'point')} with one launch: widened by the spread between launches of the others."
    return f"± is half of the 95 % interval{kind}" + (widened if pooled else "")


def _probability_note(points: pd.DataFrame) -> str:
    known = points["frontier_probability"].notna().any()
    return "frontier %: how often a point is on it when launches are drawn anew." if known else ""


def _environment_note(trials: pd.DataFrame) -> str:
    """Name the columns that have one value in each environment, but not the same in all."""
    groups = trials.groupby("env_id", dropna=False)
    if groups.ngroups < 2:
        return ""
    note = f"Measured in {groups.ngroups} environments (env_id): never compared with each other. "
    constant = [c for c in _MACHINE_COLUMNS if groups[c].nunique(dropna=False).max() == 1]
    differing = [c for c in constant if trials[c].nunique(dropna=False) > 1]
    if not differing:
        return note + "What differs is in the column machine of the table of ranks."
    values = {c: "; ".join(f"{env_id}: {group[c].iloc[0]}" for env_id, group in groups) for c in differing}
    return note + "They differ in " + ", ".join(f"{c} ({value})" for c, value in values.items()) + "."


def _window_note(trials: pd.DataFrame) -> str:
    counts = trials["stop_reason"].value_counts()
    return "Windows: " + ", ".join(f"{n} {reason}" for reason, n in counts.items()) + "." if len(counts) else ""


def _canary_note(canaries: pd.DataFrame) -> str:
    if canaries.empty:
        return ""
    worlds = canaries.drop_duplicates(list(WORLD))
    note = f"Canary: {count_of(len(canaries), 'session')} of {count_of(len(worlds), 'world')}, "
    drift = canaries["drift"].abs().max()
    note += f"largest drift inside a session {drift:.1%}." if canaries["drift"].notna().any() else "no second canary."
    drifted = canaries[canaries["flagged"].fillna(value=False)]
    if len(drifted):
        trials = count_of(int(drifted["trials"].sum()), "trial")
        sessions = ", ".join(drifted["session"].astype(str))
        counted = f"{count_of(len(drifted), 'session')} with {trials}: {sessions}"
        note += f" Drifted more than {CANARY_DRIFT * 100:.0f} %: {counted}."
    return note


def _flag_note(flags: Mapping[str, int]) -> str:
    if not flags:
        return ""
    counts = ", ".join(f"{flag} on {count_of(count, 'trial')}" for flag, count in flags.items())
    meanings = [f"  {flag}: {FLAG_MEANINGS[flag]}" for flag in flags if flag in FLAG_MEANINGS]
    return "\n".join([f"Flags: {counts}.", *meanings])
