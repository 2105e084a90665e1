"""Notes on a report's numbers: models, intervals, windows, gradients, canaries and flags."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.canaries import COMPARED, WORLD
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.study import Study
from dtsweep.report.labels import compression_label, model_columns, model_label
from dtsweep.report.next_step import run_with_launches
from dtsweep.results.statuses import CANARY_DRIFT, FLAG_MEANINGS
from dtsweep.sweep.settings import ENERGY_FROM_S
from dtsweep.text import count_of, ends_of, format_rate, half_of, is_lopsided

if TYPE_CHECKING:
    import pandas as pd

COUNTED_BELOW = 10_000
"""Smaller sizes of models are given in full."""

_ENDS = {
    "precise": "at the half_width asked for",
    "enough": "at min_steps and min_seconds",
    "max_seconds": "at max_seconds",
    "max_steps": "at max_steps",
    "ended": "with the training loop",
}
"""Ends of a window by `stop_reason`, in words."""

_ROUNDING, _OTHER_METHOD = 1e-6, 0.01
"""Largest `gradient_error` from rounding, and from another way to compute the same gradient.

See docs/measuring.md.
"""


def notes_on(study: Study, points: pd.DataFrame, *, compare_models: bool = False) -> list[str]:
    """Write how the numbers of a report came about.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.
        compare_models: whether all models were compared with each other.

    Returns:
        One text per note; lines after its first explain it. Empty where there are no points.
    """
    if points.empty:
        return []
    trials = without_canaries(study.frame)
    measured = trials[trials["status"] == "ok"]
    points = points[points["meets"].fillna(value=False)]
    on_points = (
        _model_note(points, compare_models=compare_models),
        _interval_note(points, way=run_with_launches(study)),
        _probability_note(points),
        _exchange_note(measured),
        _compression_note(points),
    )
    on_trials = (
        _window_note(measured),
        _gradient_note(measured),
        _energy_note(measured),
        _canary_note(study.canaries),
        _flag_note(trials["flags"].explode()),
    )
    return [*filter(None, (*on_points, *on_trials))]


def _model_note(points: pd.DataFrame, *, compare_models: bool) -> str:
    """Name the models with their sizes; empty if there is one model."""
    models = points.drop_duplicates(["workload", "model_digest"])
    if len(models) < 2:
        return ""
    how = "each on frontiers and ladders of its own"
    if compare_models:
        how = "compared with each other, as one product"
    names = model_columns(points)
    sizes = [f"{model_label(row, names)} ({_size(row)})" for _, row in models.iterrows()]
    return f"{len(models)} models (by workload and model_digest), {how}: {'; '.join(sizes)}."


def _count(value: float) -> str:
    if value < COUNTED_BELOW:
        return f"{value:,.0f}"
    return format_rate(value)


def _size(model: pd.Series[Any]) -> str:
    sizes = model[["parameters", "flops_per_sample"]].dropna()
    words = {"parameters": "parameters", "flops_per_sample": "FLOP a sample"}
    return (
        ", ".join(f"{_count(float(value))} {words[str(name)]}" for name, value in sizes.items())
        or "of unknown size"
    )


def _interval_note(points: pd.DataFrame, *, way: str) -> str:
    with_interval = points[points["latency_s_low"].notna()]
    if with_interval.empty:
        return ""
    single_launch = int((with_interval["interval"] == "launch").sum())
    within = ""
    if single_launch != len(with_interval):
        count = count_of(len(with_interval), "point")
        within = f" for {single_launch} of {count}, else over launches"
    shown = [
        zip(points[name], *ends_of(points, name), strict=True)
        for name in ("latency_s", "samples_per_s")
    ]
    ends = ""
    if any(is_lopsided(*row) for rows in shown for row in rows):
        ends = ", in brackets are its ends"
    advice = ""
    if not within:
        advice = f", and {way} would show how far launches differ"
    kind = f" over launches{ends}."
    if single_launch:
        kind = f"{ends}; intervals are within one launch{within}{advice}."
    is_pooled = (with_interval["interval"] == "pooled") & (with_interval["launches"] == 1)
    pooled = int(is_pooled.sum())
    widened = (
        f" {count_of(pooled, 'point')} with one launch: widened by the spread between launches of "
        "the others."
    )
    unknown = int(points["latency_s"].notna().sum()) - len(with_interval)
    missing = ""
    if unknown:
        missing = f" None on {count_of(unknown, 'point')}: too few steps, or they drift."
    return f"± is half of the 95 % interval{kind}" + (widened if pooled else "") + missing


def _probability_note(points: pd.DataFrame) -> str:
    if points["frontier_probability"].notna().any():
        return (
            "frontier %: how often a point is on the frontier when all means are resampled within "
            "their errors (parametric bootstrap over launches)."
        )
    return ""


def _exchange_note(trials: pd.DataFrame) -> str:
    """Give the reasons for trials without an exchange share."""
    empty = trials[trials["comm_share"].isna()]
    alone = (empty["workers"] == 1) & empty["comm_reason"].isna()
    reasons = (
        empty[~alone]["comm_reason"].astype("object").fillna("no reason stored").value_counts()
    )
    if len(empty) == len(trials) and reasons.empty:
        return ""
    where = []
    if alone.any():
        where = [f"{alone.sum()} with one worker"]
    where += [f"{count} ({reason})" for reason, count in reasons.items()]
    if not where:
        return ""
    return f"Trials without a share of exchange + wait: {'; '.join(where)}."


def _compression_note(points: pd.DataFrame) -> str:
    if points["compression_error"].notna().any():
        return "error %: one compressed exchange against the mean of the values themselves."
    return ""


def _window_note(trials: pd.DataFrame) -> str:
    counts = trials["stop_reason"].value_counts()
    if not len(counts):
        return ""
    ends = [
        f"{_ENDS.get(str(reason), reason)} in {count_of(count, 'trial')}"
        for reason, count in counts.items()
    ]
    return f"The window ended {', '.join(ends)}."


def _energy_note(trials: pd.DataFrame) -> str:
    """Say that windows on GPUs are too short for energy, where nobody asked for it."""
    is_short = (trials["backend"] == "nccl") & (trials["window_s"] < ENERGY_FROM_S)
    count = int((is_short & trials["energy_j"].isna()).sum())
    if not count:
        return ""
    return (
        f"energy_j is null on {count_of(count, 'trial')} with a window under {ENERGY_FROM_S:g} s; "
        "Measure(energy=True) makes windows long enough."
    )


def _gradient_note(trials: pd.DataFrame) -> str:
    """Say how far the gradients of checked trials differ from one worker's."""
    import pandas as pd

    checked = trials.dropna(subset=["gradient_error"])
    if checked.empty:
        return ""
    is_lossy = checked["compression"].notna()
    errors = checked["gradient_error"]
    equal = errors[errors <= _ROUNDING]
    sentences = []
    if len(equal):
        trials_equal = count_of(len(equal), "trial")
        sentences.append(f"equal but for rounding in {trials_equal} (at most {equal.max():.1g})")
    beyond_rounding = (
        f"more than rounding ({_ROUNDING:g}), as another GPU or a compiled bf16 model gives"
    )
    kinds = {
        beyond_rounding: errors.between(_ROUNDING, _OTHER_METHOD, inclusive="right") & ~is_lossy,
        f"more than {_OTHER_METHOD:g}, so another gradient": (errors > _OTHER_METHOD) & ~is_lossy,
        "what the compression changes in one exchange, and not wrong by that": (errors > _ROUNDING)
        & is_lossy,
    }
    labels = [compression_label(row) for _, row in checked.iterrows()]
    names = [
        " ".join(filter(None, words))
        for words in zip(checked["sync"], labels, checked["precision"], strict=True)
    ]
    for words, rows in kinds.items():
        groups = checked[rows].groupby(pd.Series(names, index=checked.index))["gradient_error"]
        for name, group in groups:
            count = count_of(len(group), "trial")
            sentences.append(f"up to {group.max():.1g} apart in {count} of {name}: {words}")
    return f"Gradient of the first step against one worker's: {'; '.join(sentences)}."


def _canary_note(canaries: pd.DataFrame) -> str:
    if canaries.empty:
        return ""
    counts = canaries.groupby(list(COMPARED), dropna=False)["canaries"].transform("sum")
    sessions = canaries["session"].nunique()
    worlds = len(canaries.drop_duplicates(WORLD))
    where = f" of {worlds} worlds" if worlds > 1 else ""
    note = f"Canaries, which repeat one point, ran in {count_of(sessions, 'session')}{where}: "
    drifts = canaries.dropna(subset=["drift"]).sort_values("drift", key=abs)
    note += (
        f"largest drift within a session {_drift(drifts.iloc[-1])}."
        if len(drifts)
        else "no session has two."
    )
    limit = f"{CANARY_DRIFT * 100:.0f} %"
    note += _sessions(f"Drift above {limit}", canaries[canaries["flagged"].fillna(value=False)])
    return note + _sessions(
        f"Too imprecise to exclude a drift of {limit}",
        canaries[canaries["flagged"].isna() & (counts > 1)],
    )


def _drift(session: pd.Series[Any]) -> str:
    half = half_of(session, "drift")
    size = f"{abs(session['drift']) * 100:.1f}"
    if math.isfinite(half):
        size += f" ± {half * 100:.1f}"
    return f"{size} %"


def _sessions(finding: str, sessions: pd.DataFrame) -> str:
    """Name the sessions to which `finding` applies, with their trials; empty if there are none."""
    if sessions.empty:
        return ""
    trials = count_of(int(sessions["trials"].sum()), "trial")
    named = sessions["session"].astype(str).unique()
    return f" {finding}: {count_of(len(named), 'session')} with {trials}: {', '.join(named)}."


def _flag_note(flags: pd.Series[str]) -> str:
    counts = flags.value_counts()
    if counts.empty:
        return ""
    listed = ", ".join(
        f"{flag} on {count_of(int(count), 'trial')}" for flag, count in counts.items()
    )
    meanings = [
        f"  {flag}: {FLAG_MEANINGS[str(flag)]}" for flag in counts.index if flag in FLAG_MEANINGS
    ]
    return "\n".join([f"Flags: {listed}.", *meanings])
