"""Notes on a report's numbers, to read before trusting them: intervals, environments, windows, canaries, flags."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.canaries import WORLD
from dtsweep.analysis.generations import older_source
from dtsweep.analysis.launches import is_superseded, without_canaries
from dtsweep.report.labels import compression_label, model_columns, model_label, trial_label
from dtsweep.report.text import count_of, format_rate, half_of
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

_IMPLAUSIBLE_SHOWN = 8

COUNTED_BELOW = 10_000
"""Smaller sizes of models are given in full."""

_ROUNDING, _OTHERWISE = 1e-6, 0.01
"""Up to where `gradient_error` is rounding, and up to where the same is computed otherwise: docs/measuring.md."""


def notes_on(
    frame: pd.DataFrame,
    points: pd.DataFrame,
    *,
    canaries: pd.DataFrame,
    flags: Mapping[str, int],
    varying: Sequence[str],
    one_product: bool = False,
) -> list[str]:
    """Write what to know before trusting the numbers of a report.

    Args:
        frame: one row per trial, canaries included.
        points: rows of `dtsweep.analysis.frontier`.
        canaries: rows of `dtsweep.analysis.canaries`.
        flags: trials by flag.
        varying: setting columns that have more than one value.
        one_product: whether all models were compared with each other.

    Returns:
        One text per note; lines after its first explain it. Empty where there are no points.
    """
    if points.empty:
        return []
    measured = without_canaries(frame[frame["status"] == "ok"])
    on_points = (
        _implausible_note(measured, varying),
        _model_note(points, one_product=one_product),
        _interval_note(points),
        _probability_note(points),
        _exchange_note(measured),
        _compression_note(points),
    )
    on_trials = (
        _environment_note(measured),
        _source_note(measured, points),
        _window_note(measured),
        _gradient_note(measured),
        _canary_note(canaries),
        _failed_canary_note(frame),
        _flag_note(flags),
    )
    return [*filter(None, (*on_points, *on_trials))]


def _implausible_note(trials: pd.DataFrame, varying: Sequence[str]) -> str:
    """Say of each trial whose numbers can't all be true which they are; of many, of the first."""
    found = trials[trials["implausible"].notna()]
    if found.empty:
        return ""
    shown = found.head(_IMPLAUSIBLE_SHOWN)
    lines = [f"  {trial_label(row, varying)}: {row['implausible']}" for _, row in shown.iterrows()]
    more = len(found) - len(shown)
    lines += [f"  {count_of(more, 'more trial')}: the column implausible has them"] if more else []
    first = f"Implausible: numbers of {count_of(len(found), 'trial')} can't all be true; --all shows what they beat."
    return "\n".join([first, *lines])


def _model_note(points: pd.DataFrame, *, one_product: bool) -> str:
    """Say that there are several models, which they are, and how large each is."""
    models = points.drop_duplicates(["workload", "model_digest"])
    if len(models) < 2:
        return ""
    how = "compared with each other, as one product" if one_product else "each on frontiers and ladders of its own"
    telling = model_columns(points)
    sizes = [f"{model_label(row, telling)} ({_size(row)})" for _, row in models.iterrows()]
    return f"{len(models)} models (by workload and model_digest), {how}: {'; '.join(sizes)}."


def _count(value: float) -> str:
    return f"{value:,.0f}" if value < COUNTED_BELOW else format_rate(value)


def _size(model: pd.Series[Any]) -> str:
    known = model[["parameters", "flops_per_sample"]].dropna()
    words = {"parameters": "parameters", "flops_per_sample": "FLOP a sample"}
    return ", ".join(f"{_count(float(value))} {words[str(name)]}" for name, value in known.items()) or "of unknown size"


def _interval_note(points: pd.DataFrame) -> str:
    known = points[points["latency_s_low"].notna()]
    if known.empty:
        return ""
    one = int((known["interval"] == "launch").sum())
    within = "" if one == len(known) else f" for {one} of {count_of(len(known), 'point')}, else over launches"
    kind = f"; intervals are within one launch{within}." if one else " over launches."
    pooled = int(((known["interval"] == "pooled") & (known["launches"] == 1)).sum())
    widened = f" {count_of(pooled, 'point')} with one launch: widened by the spread between launches of the others."
    unknown = int(points["latency_s"].notna().sum()) - len(known)
    missing = f" None on {count_of(unknown, 'point')}: too few steps, or they drift." if unknown else ""
    return f"± is half of the 95 % interval{kind}" + (widened if pooled else "") + missing


def _probability_note(points: pd.DataFrame) -> str:
    known = points["frontier_probability"].notna().any()
    return "frontier %: how often a point is on it when launches are drawn anew." if known else ""


def _exchange_note(trials: pd.DataFrame) -> str:
    """Say why the share of a step that is exchange is empty, where it is."""
    empty = trials[trials["comm_share"].isna()]
    alone = (empty["workers"] == 1) & empty["comm_reason"].isna()
    reasons = empty[~alone]["comm_reason"].astype("object").fillna("no reason stored").value_counts()
    if len(empty) == len(trials) and reasons.empty:
        return ""
    where = [f"on {count_of(int(alone.sum()), 'trial')} with one worker"] if alone.any() else []
    where += [f"on {count_of(count, 'trial')}: {reason}" for reason, count in reasons.items()]
    return f"Exchange + wait is empty {'; '.join(where)}." if where else ""


def _compression_note(points: pd.DataFrame) -> str:
    known = points["compression_error"].notna().any()
    return "error %: one compressed exchange against the mean of the values themselves." if known else ""


def _environment_note(trials: pd.DataFrame) -> str:
    """Name the columns that have one value in each environment, but not the same in all."""
    groups = trials.groupby("env_id", dropna=False)
    if groups.ngroups < 2:
        return ""
    note = f"Measured in {groups.ngroups} environments (env_id): never compared with each other. "
    constant = [c for c in _MACHINE_COLUMNS if groups[c].nunique(dropna=False).max() == 1]
    differing = [c for c in constant if trials[c].nunique(dropna=False) > 1]
    if not differing:
        return note + "What differs is in the columns machine and threads of the table of ranks."
    values = {c: "; ".join(f"{env_id}: {group[c].iloc[0]}" for env_id, group in groups) for c in differing}
    return note + "They differ in " + ", ".join(f"{c} ({value})" for c, value in values.items()) + "."


def _source_note(trials: pd.DataFrame, points: pd.DataFrame) -> str:
    """Say what was measured with an earlier source of the workload: what is left out, and what stands apart."""
    marked = trials.assign(older_source=older_source(trials))
    left, apart = int(is_superseded(marked).sum()), points["older_source"].value_counts()
    said = []
    if left:
        said.append(
            f"{count_of(left, 'trial')} left out: measured with another source of the workload, other data or another "
            "environment than their point has been since."
        )
    if len(apart):
        each = [f"{count_of(count, 'point')} ({change})" for change, count in apart.items()]
        said.append(
            f"Measured with an older source of the workload, on frontiers and ladders of their own: {', '.join(each)}; "
            "the next run measures anew those that its sweep still has, another --results leaves the rest out."
        )
    return " ".join(said)


def _window_note(trials: pd.DataFrame) -> str:
    counts = trials["stop_reason"].value_counts()
    return "Windows: " + ", ".join(f"{n} {reason}" for reason, n in counts.items()) + "." if len(counts) else ""


def _gradient_note(trials: pd.DataFrame) -> str:
    """Say whether the gradients of checked trials are one worker's, and where not how far they are from it."""
    import pandas as pd

    checked = trials.dropna(subset=["gradient_error"])
    if checked.empty:
        return ""
    is_lossy, errors = checked["compression"].notna(), checked["gradient_error"]
    equal = errors[errors <= _ROUNDING]
    said = [f"equal but for rounding in {count_of(len(equal), 'trial')} (at most {equal.max():.1g})"] * (len(equal) > 0)
    more = f"more than rounding ({_ROUNDING:g}), as another GPU or a compiled bf16 model gives"
    apart = {
        more: errors.between(_ROUNDING, _OTHERWISE, inclusive="right") & ~is_lossy,
        f"more than {_OTHERWISE:g}, so another gradient": (errors > _OTHERWISE) & ~is_lossy,
        "what the compression changes in one exchange, and not wrong by that": (errors > _ROUNDING) & is_lossy,
    }
    labels = [compression_label(row) for _, row in checked.iterrows()]
    names = [" ".join(filter(None, words)) for words in zip(checked["sync"], labels, checked["precision"], strict=True)]
    for words, rows in apart.items():
        found = checked[rows].groupby(pd.Series(names, index=checked.index))["gradient_error"]
        said += [
            f"up to {each.max():.1g} apart in {count_of(len(each), 'trial')} of {name}: {words}" for name, each in found
        ]
    return f"Gradient of the first step against one worker's: {'; '.join(said)}."


def _canary_note(canaries: pd.DataFrame) -> str:
    if canaries.empty:
        return ""
    counts = canaries.groupby(list(WORLD), dropna=False)["canaries"].transform("sum")
    sessions, worlds = canaries["session"].nunique(), len(canaries.drop_duplicates(WORLD))
    note = f"Canary: {count_of(sessions, 'session')} of {count_of(worlds, 'world')}, "
    drifts = canaries.dropna(subset=["drift"]).sort_values("drift", key=abs)
    note += f"largest drift inside a session {_drift(drifts.iloc[-1])}." if len(drifts) else "no second canary."
    limit = f"{CANARY_DRIFT * 100:.0f} %"
    note += _sessions(f"Drifted more than {limit}", canaries[canaries["flagged"].fillna(value=False)])
    return note + _sessions(f"Too imprecise to tell {limit}", canaries[canaries["flagged"].isna() & (counts > 1)])


def _failed_canary_note(frame: pd.DataFrame) -> str:
    """Say of canaries that ran and did not end `ok` why, for each status by the first of them."""
    ran = frame[frame["role"].isin(["canary"]) & (frame["status"] != "cancelled")]
    failed = ran[ran["status"] != "ok"]
    if failed.empty:
        return ""
    lines = [f"Canary: {len(failed)} of {len(ran)} did not end ok, so less is known of whether the machine drifted."]
    for status, rows in failed.groupby("status"):
        reason, log = rows[["reason", "log"]].astype("object").fillna("").iloc[0]
        lines.append(f"  {len(rows)} {status}: {reason or 'no reason stored'}" + (f" (log: {log})" if log else ""))
    return "\n".join(lines)


def _drift(session: pd.Series[Any]) -> str:
    half = half_of(session, "drift")
    return f"{abs(session['drift']):.1%}" + (f" ±{half:.1%}" if math.isfinite(half) else "")


def _sessions(what: str, sessions: pd.DataFrame) -> str:
    """Name the sessions of which this is to be said, if there are any."""
    if sessions.empty:
        return ""
    trials, names = count_of(int(sessions["trials"].sum()), "trial"), sessions["session"].astype(str).unique()
    return f" {what}: {count_of(len(names), 'session')} with {trials}: {', '.join(names)}."


def _flag_note(flags: Mapping[str, int]) -> str:
    if not flags:
        return ""
    counts = ", ".join(f"{flag} on {count_of(count, 'trial')}" for flag, count in flags.items())
    meanings = [f"  {flag}: {FLAG_MEANINGS[flag]}" for flag in flags if flag in FLAG_MEANINGS]
    return "\n".join([f"Flags: {counts}.", *meanings])
