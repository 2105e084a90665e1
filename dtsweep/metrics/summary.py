"""From the steps of all ranks to the figures of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtsweep.measure.statistics import (
    Series,
    effective_count,
    mean_half_width,
    over_periods,
    quantile_interval,
    reported_half_width,
    slowest_rank,
    steps_in,
)
from dtsweep.measure.warmup import drift, spikes, steady_class, steady_from
from dtsweep.metrics.breakdown import (
    PHASE_COLUMNS,
    Outcome,
    Row,
    device_columns,
    exchange_columns,
    flops_columns,
    skew_columns,
    slowest_phase_s,
    steps_of,
)
from dtsweep.metrics.flags import flags
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import LEAST_HALF_WIDTH

P99_FROM = 100
"""Steps from which on a 99th percentile is given."""


def mark_warmup(point: Point, ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mark which steps are warm-up: those before the window, and those at its start that are not steady yet.

    Args:
        point: what was measured.
        ranks: the columns of `steps` of each rank that measured.

    Returns:
        The same with `warmup`. Where ranks step together the slowest rank's steps say where the steady part
        begins; where they don't, each rank's own. If no part is steady, nothing of the window is left out; nor
        if ranks that step apart were steady at different times.
    """
    if not ranks:
        return []
    windows = [steps["part"] == "window" for steps in ranks]
    series = [steps["step_s"][window] for steps, window in zip(ranks, windows, strict=True)]
    together = not point.is_asynchronous and len({len(times) for times in series}) == 1
    if together:
        found = [(steady_from(_together(point, series)) or 0) * point.period] * len(series)
    else:
        found = [(steady_from(over_periods(times, point.period)) or 0) * point.period for times in series]
    if point.is_asynchronous and not _steady_together(ranks, found):
        found = [0] * len(found)
    marked = []
    for steps, window, count in zip(ranks, windows, found, strict=True):
        part = np.where(window & (np.cumsum(window) <= count), "warmup", steps["part"])
        marked.append({**steps, "part": part, "warmup": part == "warmup"})
    return marked


def trial_columns(point: Point, ranks: Sequence[Outcome], *, half_width: float | None) -> Row:
    """The statistics of a window, from the raw steps of all ranks.

    Args:
        point: what was measured.
        ranks: what each rank sent, its steps with `warmup`.
        half_width: how well the mean should be known, as a share of it.

    Returns:
        Columns of `trials`, `flags` among them.
    """
    series = [steps_of(rank, "step_s") for rank in ranks]
    if point.is_asynchronous:
        steps = periods = np.concatenate(series)
        rate, share = _asynchronous_rate(point, ranks)
    else:
        steps, periods = slowest_rank(series), _together(point, series)
        rate = point.global_batch * len(steps) / _window_s(ranks)
        half = reported_half_width(periods)
        share = half / float(periods.mean()) if half is not None else None
    row = {
        **_rates(point, rate, share),
        **_mean(float(periods.mean()), share),
        **_step_times(steps, worth=_worth(series if point.is_asynchronous else [steps])),
        # An exchange in every period is a pattern: it is no oddity.
        "spike_share": float(spikes(periods).mean()),
        "stop_reason": ranks[0]["stop_reason"],
        "warmup_steps": int(min(rank["steps"]["warmup"].sum() for rank in ranks)),
        "measured_steps": min(len(times) for times in series),
        "window_s": _window_s(ranks),
        **{name: slowest_phase_s(ranks, name) for name in PHASE_COLUMNS},
        **exchange_columns(point, ranks),
        **skew_columns(ranks),
        **flops_columns(point, ranks, rate),
        **device_columns(point, ranks),
        "memory_peak_bytes": max(rank["memory_peak_bytes"] for rank in ranks),
        **staleness_columns([steps for rank in ranks for steps in rank.get("staleness", ())]),
        **_losses(ranks),
    }
    judged = series[0] if point.is_asynchronous else periods
    row |= _steadiness(judged, ranks, within=max(half_width or 0.0, share or 0.0))
    return {**row, "flags": flags(row, steps, periods, ranks, half_width=half_width)}


def staleness_columns(staleness: Sequence[int]) -> Row:
    """Mean and largest number of updates by others between a pull and its push."""
    if not len(staleness):
        return {}
    return {"staleness_mean": float(np.mean(staleness)), "staleness_max": int(np.max(staleness))}


def _together(point: Point, series: Sequence[Series]) -> Series:
    """Per sync period, the mean step of its slowest rank: (periods,) seconds.

    Within a period ranks don't wait for each other: what one loses in a step it may gain in the next.
    """
    return slowest_rank([over_periods(times, point.period) for times in series])


def _steady_together(ranks: Sequence[Mapping[str, Any]], found: Sequence[int]) -> bool:
    """Whether all ranks are steady for at least half of the time in which all are in their windows."""
    windows = [steps["start_s"][steps["part"] == "window"] for steps in ranks]
    last = [steps["step_s"][steps["part"] == "window"][-1] for steps in ranks]
    ended = min(starts[-1] + seconds for starts, seconds in zip(windows, last, strict=True))
    began = max(starts[count] for starts, count in zip(windows, found, strict=True))
    return bool(ended - began >= 0.5 * (ended - max(starts[0] for starts in windows)))


def _window_s(ranks: Sequence[Outcome]) -> float:
    """From the first measured step to the end of the last worker's work."""
    return max(float(rank["window_s"] - steps_of(rank, "start_s")[0]) for rank in ranks)


def _asynchronous_rate(point: Point, ranks: Sequence[Outcome]) -> tuple[float, float | None]:
    """Samples per second while all workers were steadily at work, and its 95 % half-width as a share of it.

    The window ends with the first worker that stops; the others' step under way then counts by its share.
    """
    starts = [steps_of(rank, "start_s") for rank in ranks]
    series = [steps_of(rank, "step_s") for rank in ranks]
    ends = [start + times for start, times in zip(starts, series, strict=True)]
    began, ended = max(float(start[0]) for start in starts), min(float(end[-1]) for end in ends)
    counts = [steps_in(end - start[0], ended - start[0]) for start, end in zip(starts, ends, strict=True)]
    before = [steps_in(end - start[0], began - start[0]) for start, end in zip(starts, ends, strict=True)]
    samples = (sum(counts) - sum(before)) * point.micro_batch * point.accumulation
    rate = samples / (ended - began)
    counted = [times[(end - times >= began) & (end <= ended)] for times, end in zip(series, ends, strict=True)]
    halves = [mean_half_width(times) for times in counted]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return rate, None
    # Workers vary independently: the squares of their rates' errors add up.
    means = np.array([times.mean() for times in counted])
    share = float(np.sqrt(np.sum(np.square(known / means**2))) / np.sum(1 / means))
    return rate, max(share, LEAST_HALF_WIDTH)


def _rates(point: Point, rate: float, share: float | None) -> Row:
    tokens = getattr(point.workload, "tokens_per_sample", None)
    return {
        "samples_per_s": rate,
        "samples_per_s_low": rate / (1 + share) if share is not None else None,
        "samples_per_s_high": rate / (1 - share) if share is not None and share < 1 else None,
        "tokens_per_s": rate * tokens if tokens else None,
        "half_width": share,
    }


def _worth(series: Sequence[Series]) -> float | None:
    """How many independent steps those of one or several workers are worth; None where one has too few."""
    return sum(map(effective_count, series)) if min(map(len, series)) > 2 else None


def _mean(mean: float, share: float | None) -> Row:
    return {
        "step_mean_s": mean,
        "step_mean_s_low": mean * (1 - share) if share is not None and share < 1 else None,
        "step_mean_s_high": mean * (1 + share) if share is not None else None,
    }


def _step_times(steps: Series, *, worth: float | None) -> Row:
    row: Row = {
        "step_p90_s": float(np.quantile(steps, 0.9)),
        "step_max_s": float(steps.max()),
        "step_cv": float(steps.std(ddof=1) / steps.mean()) if len(steps) > 1 else None,
        "effective_steps": worth,
        "insufficient": [],
    }
    for name, p in {"p50": 0.5, "p95": 0.95, "p99": 0.99}.items():
        interval = quantile_interval(steps, p, count=worth) if worth else None
        if interval is None:
            row["insufficient"].append(name)
        row[f"step_{name}_s"] = float(np.quantile(steps, p)) if name != "p99" or len(steps) >= P99_FROM else None
        row[f"step_{name}_s_low"], row[f"step_{name}_s_high"] = interval or (None, None)
    return row


def _losses(ranks: Sequence[Outcome]) -> Row:
    losses = [steps_of(rank, "loss") for rank in ranks]
    sent = [rank["bytes_sent"] / rank["window_steps"] for rank in ranks if "bytes_sent" in rank]
    return {
        "loss_first": float(np.mean([loss[0] for loss in losses])),
        "loss_last": float(np.mean([loss[-1] for loss in losses])),
        "bytes_sent_per_step": float(np.mean(sent)) if sent else None,
    }


def _steadiness(series: Series, ranks: Sequence[Outcome], *, within: float) -> Row:
    """How the window became steady; where steps are each worker's own, by those of rank 0."""
    found = [(rank["steps"]["part"] == "warmup").sum() > rank["hard_skip"] for rank in ranks]
    kind = steady_class(series, within=within)
    return {
        "drift": drift(series) if len(series) >= 3 else None,
        "steady_class": "warmup" if kind == "flat" and any(found) else kind,
    }
