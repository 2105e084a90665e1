"""The measured columns of a trial, from the steps, counters and telemetry of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import (
    Series,
    correlation_time,
    least_values,
    mean_half_width,
    quantile_interval,
    reported_half_width,
    standard_error,
)
from dtsweep.measure.stopping import LIMITS
from dtsweep.measure.warmup import Steadiness, spikes
from dtsweep.metrics.breakdown import (
    PHASE_COLUMNS,
    Row,
    device_columns,
    flops_columns,
    mean_phase_s,
    work_columns,
)
from dtsweep.metrics.exchange_share import exchange_columns, input_columns
from dtsweep.metrics.flags import flags
from dtsweep.metrics.rank_result import Measured, trained_in_window
from dtsweep.metrics.skew import skew_columns
from dtsweep.metrics.window_view import WindowView, dropped_share, view_of, window_s
from dtsweep.sweep.modes import OPEN_LOOP, latency_column
from dtsweep.sweep.point import Point, tokens_per_sample
from dtsweep.sweep.settings import LEAST_HALF_WIDTH, P99_FROM

_BINS = 48
"""Bins of a window in which the answers of an open loop are counted."""

TAILS = {"step_p90_s": 0.90, "step_p95_s": 0.95, "step_p99_s": 0.99}
"""Columns that only long windows have an interval of, and their quantiles."""


def least_steps(columns: Iterable[str]) -> int:
    """Least steps of a window from which on a 95 % interval of each of these columns exists.

    It counts independent steps. Correlated ones are worth fewer, and independent ones can look
    correlated by chance: windows need more to have the interval for sure. 0 without a column of
    `TAILS`.

    >>> least_steps(["samples_per_s", "step_p95_s"]), least_steps(["latency_s"])
    (72, 0)
    """
    return max((least_values(TAILS[name]) for name in columns if name in TAILS), default=0)


def trial_columns(
    point: Point, ranks: Sequence[Measured], *, nodes: Sequence[str], wanted: float | None
) -> Row:
    """The statistics of a window, from the raw steps of all ranks.

    Args:
        point: what was measured.
        ranks: what each rank measured, its steps with `warmup`.
        nodes: the host name of each rank.
        wanted: half-width that the mean should have, as a share of it.

    Returns:
        Columns of `trials`, `flags` among them.
    """
    row = columns_of_steps(point, ranks, nodes=nodes, wanted=wanted)
    return {
        **row,
        **flops_columns(point, ranks, row["samples_per_s"]),
        **work_columns(ranks, row["step_mean_s"]),
        **device_columns(point, ranks, nodes),
        "memory_peak_bytes": largest_peak(ranks),
        **_turn_columns(point, ranks),
        **_bubble_columns(point, ranks),
        **staleness_columns([count for rank in ranks for count in rank.staleness]),
        "dropped_share": dropped_share(ranks),
        "bytes_sent_per_step": _per_step(ranks, [rank.bytes_sent for rank in ranks]),
        "messages_per_step": _per_step(ranks, [rank.messages_sent for rank in ranks]),
    }


def _bubble_columns(point: Point, ranks: Sequence[Measured]) -> Row:
    """Share of the passes in which workers of a pipeline wait, and what its schedule leaves."""
    idle = [
        1 - rank.stage_busy_s / rank.pipeline_s
        for rank in ranks
        if rank.pipeline_s and rank.stage_busy_s is not None
    ]
    if len(idle) < len(ranks):
        return {}
    return {"bubble_share": sum(idle) / len(idle), "bubble_expected": point.bubble}


def largest_peak(ranks: Iterable[Measured]) -> int | None:
    """Highest memory of any rank, in bytes; None where one does not know its own."""
    peaks = [rank.memory_peak_bytes for rank in ranks]
    known = [peak for peak in peaks if peak is not None]
    if len(known) < len(peaks):
        return None
    return max(known, default=None)


def _turn_columns(point: Point, ranks: Sequence[Measured]) -> Row:
    """Rate and latency of each turn; none of a whole window."""
    if not ranks[0].is_in_turn:
        return {}
    latency = latency_column(point.semantics, period=point.period)
    rates, latencies = [], []
    for number in range(int(ranks[0].steps["turn"].max()) + 1):
        turns = [rank.in_turn(number) for rank in ranks]
        view = view_of(point, turns)
        latency_s = float(view.periods.mean())
        if latency == "step_p50_s":
            latency_s = float(np.median(view.steps))
        rates.append(view.rate)
        latencies.append(latency_s)
    return {"turn_samples_per_s": rates, "turn_latency_s": latencies}


def columns_of_steps(
    point: Point, ranks: Sequence[Measured], *, nodes: Sequence[str], wanted: float | None
) -> Row:
    """Give those of `trial_columns` that are made from steps alone; same arguments."""
    if point.sync == OPEN_LOOP:
        return _columns_of_requests(point, ranks, wanted=wanted)
    view = view_of(point, ranks)
    steady_state = ranks[0].steadiness
    assert steady_state is not None, "mark_warmup comes first"
    # Without a wanted half-width a drift counts beyond the one that there is.
    if wanted is None:
        within = view.share or 0.0
    else:
        within = wanted
    share = None
    if view.share is not None:
        share = steady_state.widen(view.share, within=within)
    skew = skew_columns(ranks, nodes)
    trained = [*trained_in_window(ranks).values()]
    row = {
        **window_columns(point, replace(view, share=share)),
        # An exchange in every period is a pattern, not a spike.
        "spike_share": float(spikes(view.periods).mean()),
        "stop_reason": _stop_reason(ranks[0].stop_reason, share=share, wanted=wanted),
        "warmup_steps": int(min(rank.steps["warmup"].sum() for rank in ranks)),
        "measured_steps": min(len(rank.of_part("step_s")) for rank in ranks),
        "window_s": window_s(point, ranks),
        **{name: mean_phase_s(trained, name) for name in PHASE_COLUMNS},
        **exchange_columns(point, ranks),
        **skew,
        **input_columns(ranks, straggler=skew["straggler"]),
        **_losses(ranks),
        **_steadiness(steady_state, ranks, within=within),
    }
    if steady_state.drifts(within=within):
        row = _without_intervals(row)
    return {**row, "flags": flags(row, view.steps, view.periods, ranks, wanted=wanted)}


def _columns_of_requests(point: Point, ranks: Sequence[Measured], *, wanted: float | None) -> Row:
    """Columns of an open loop, all of whose requests rank 0 has sent.

    Those that were not answered count in percentiles, as slower than all others.
    """
    first = ranks[0].answered()
    answered = first.of_part("step_s")
    mean_s = float(answered.mean())
    view = WindowView(
        steps=answered,
        strata=np.zeros(len(answered), np.int64),
        periods=answered,
        rate=0.0,
        share=_share_of(reported_half_width(answered), mean_s),
        error=_share_of(standard_error(answered), mean_s),
        unanswered=len(ranks[0].of_part("step_s")) - len(answered),
    )
    noticed = dict.fromkeys(flag for rank in ranks for flag in rank.flags)
    if view.share is None or view.share > (wanted or math.inf):
        noticed["imprecise"] = None
    return {
        **window_columns(point, view),
        **_rates(point, _completions(view, first)),
        "half_width": view.share,
        "stop_reason": first.stop_reason,
        "warmup_steps": first.skipped_steps,
        "measured_steps": len(answered),
        "window_s": first.window_s,
        **{name: mean_phase_s([first], name) for name in PHASE_COLUMNS},
        "flags": [*noticed],
    }


def _completions(view: WindowView, first: Measured) -> WindowView:
    """View with the rate at which answers came in the window, and its error by bins of time."""
    ends = first.steps["start_s"] + first.steps["step_s"]
    count = int(((ends >= 0) & (ends < first.window_s)).sum())
    bins = max(1, min(_BINS, count // 2))
    counts = np.histogram(ends, bins=bins, range=(0.0, first.window_s))[0].astype(np.float64)
    return replace(
        view,
        rate=count / first.window_s,
        share=_share_of(mean_half_width(counts), count / bins),
        error=_share_of(standard_error(counts), count / bins),
    )


def _share_of(half: float | None, mean: float) -> float | None:
    if half is None or not mean:
        return None
    return half / mean


def staleness_columns(staleness: Sequence[int]) -> Row:
    """Mean and largest number of updates by others between a pull and its push."""
    if not len(staleness):
        return {}
    return {"staleness_mean": float(np.mean(staleness)), "staleness_max": int(np.max(staleness))}


def staleness_counts(staleness: Sequence[int]) -> Row:
    """Histogram of that number: the pushes with 0 updates by others, with 1, and so on.

    >>> staleness_counts([0, 2, 2])
    {'staleness_counts': [1, 0, 2]}
    """
    if not len(staleness):
        return {}
    return {"staleness_counts": np.bincount(staleness).tolist()}


def window_columns(point: Point, view: WindowView) -> Row:
    """Rates and step times with their intervals, the frontier's latency among them."""
    times = _step_times(view.steps, view.strata, unanswered=view.unanswered)
    row = {**_rates(point, view), **_mean(view), **times}
    latency = latency_column(point.semantics, period=point.period)
    return row | {
        f"latency_s{end}": row[f"{latency}{end}"] for end in ("", "_low", "_high", "_error")
    }


def _rates(point: Point, view: WindowView) -> Row:
    tokens = tokens_per_sample(point)
    rate = view.rate
    share = view.share
    names = ("samples_per_s_low", "samples_per_s_high", "samples_per_s_error", "tokens_per_s")
    row: Row = {"samples_per_s": rate, "half_width": share, **dict.fromkeys(names)}
    if share is not None:
        row["samples_per_s_low"] = rate / (1 + share)
    # A half-width of the whole mean or more leaves the rate without an upper bound.
    if share is not None and share < 1:
        row["samples_per_s_high"] = rate / (1 - share)
    if view.error is not None:
        row["samples_per_s_error"] = rate * view.error
    if tokens:
        row["tokens_per_s"] = rate * tokens
    return row


def _mean(view: WindowView) -> Row:
    mean = float(view.periods.mean())
    share = view.share
    names = ("step_mean_s_low", "step_mean_s_high", "step_mean_s_error")
    row: Row = {"step_mean_s": mean, **dict.fromkeys(names)}
    if share is not None and share < 1:
        row["step_mean_s_low"] = mean * (1 - share)
    if share is not None:
        row["step_mean_s_high"] = mean * (1 + share)
    if view.error is not None:
        row["step_mean_s_error"] = mean * view.error
    return row


def _step_times(steps: Series, strata: NDArray[np.int64], *, unanswered: int) -> Row:
    # A quantile of all is a higher one of the answered, and unknown among the others.
    of_answered = 1 + unanswered / len(steps)
    row: Row = {
        "step_p90_s": None,
        "step_max_s": None,
        "step_cv": None,
        "effective_steps": None,
        "insufficient": [],
    }
    if not unanswered:
        row["step_max_s"] = float(steps.max())
    if 0.9 * of_answered <= 1:
        row["step_p90_s"] = float(np.quantile(steps, 0.9 * of_answered))
    if len(steps) > 1:
        row["step_cv"] = float(steps.std(ddof=1) / steps.mean())
    if len(steps) > 2:
        row["effective_steps"] = len(steps) / correlation_time(steps, strata=strata)
    for name, p in {"p50": 0.5, "p95": 0.95, "p99": 0.99}.items():
        row |= dict.fromkeys(f"step_{name}_s{end}" for end in ("", "_low", "_high", "_error"))
        if p * of_answered > 1:
            row["insufficient"].append(name)
            continue
        value = float(np.quantile(steps, p * of_answered))
        interval = quantile_interval(steps, p * of_answered, strata=strata)
        if name != "p99" or len(steps) >= P99_FROM:
            row[f"step_{name}_s"] = value
        if interval is None:
            row["insufficient"].append(name)
            continue
        low, high = interval
        row[f"step_{name}_s_low"] = min(low, value * (1 - LEAST_HALF_WIDTH))
        row[f"step_{name}_s_high"] = max(high, value * (1 + LEAST_HALF_WIDTH))
        row[f"step_{name}_s_error"] = (high - low) / 2 / 1.96
    return row


def _losses(ranks: Sequence[Measured]) -> Row:
    """Mean losses of the window's first and last step; not a number if a rank's loss is not."""
    return {"loss_first": _mean_loss(ranks, at=0), "loss_last": _mean_loss(ranks, at=-1)}


def _mean_loss(ranks: Sequence[Measured], *, at: int) -> float | None:
    """Mean over the ranks that have a loss in a step of the window; None if none has."""
    losses = []
    for rank in ranks:
        # Not every rank of a model has its loss, and none in a step for which it was not drawn.
        if "loss" not in rank.steps:
            continue
        if "trains" in rank.steps and not rank.of_part("trains")[at]:
            continue
        losses.append(rank.of_part("loss")[at])
    if not losses:
        return None
    return float(np.mean(losses))


def _per_step(ranks: Sequence[Measured], counts: Sequence[int | None]) -> float | None:
    """Mean over ranks of their counts per step of the window; None where one did not count."""
    per_step = [
        None if count is None else count / rank.window_steps
        for rank, count in zip(ranks, counts, strict=True)
    ]
    if None in per_step:
        return None
    return float(np.mean([value for value in per_step if value is not None]))


def _steadiness(steady_state: Steadiness, ranks: Sequence[Measured], *, within: float) -> Row:
    """Steady part of the window; of rank 0's steps if steps are each worker's own."""
    has_warmup = any((rank.steps["part"] == "warmup").sum() > rank.skipped_steps for rank in ranks)
    kind = steady_state.kind(within=within)
    return {
        "drift": steady_state.drift,
        "steady_class": "warmup" if kind == "flat" and has_warmup else kind,
    }


def _stop_reason(ended_by: str, *, share: float | None, wanted: float | None) -> str:
    """Rule that ended the window."""
    is_known = share is not None and wanted is not None and share <= wanted
    if ended_by in (*LIMITS, "ended") and is_known:
        return "precise"
    return ended_by


def _without_intervals(row: Row) -> Row:
    """Columns of a window that drifts; its intervals are null, since its end value is unknown."""
    kinds = ("samples_per_s", "step_", "latency_s")
    ends = ("_low", "_high", "_error")
    return {
        name: None if name.startswith(kinds) and name.endswith(ends) else value
        for name, value in row.items()
    }
