"""What a step spends on the exchange and on waiting for the slowest worker, and which worker that is.

Exchange is what a step takes longer than the longest own work of a rank in it, wait what that is longer than the ranks'
mean. Neither depends on how many steps were timed, nor on how long blocks are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from dtsweep.measure.statistics import Series, mean_half_width, over_periods
from dtsweep.measure.turns import Share, share_of
from dtsweep.metrics.breakdown import PASS_COLUMNS, Row
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import LEAST_HALF_WIDTH

SHARES, ENDS = ("comm_share", "exchange_share", "wait_share", "overlap_share"), ("", "_low", "_high", "_error")
"""Columns that have an interval, and the names of its parts."""

SPENT = ("sync_s", "compress_s")
"""What a step spends on an exchange that nothing hides."""

PARTS = 8
"""Parts of a window, of which each is taken to vary by itself."""

NAMED_FALSELY = 0.01
"""How often one of equal workers is named if steps are independent: so it stays under 5 % where they are not."""


@dataclass(frozen=True, kw_only=True)
class _Times:
    """Seconds of each unit, a pair of blocks or a part of the window: (units,), sums over its steps."""

    steps: Series
    """With the exchange, mean of the ranks: in step all take as long."""

    longest: Series | None
    """Own work, of each step that of the rank that works longest; None where ranks have no step in common."""

    mean: Series
    """Own work, mean of the ranks."""

    count: int
    """Steps of all units together, with the exchange."""


def exchange_columns(point: Point, ranks: Sequence[Measured]) -> Row:
    """Exchange and wait by the difference to steps without the exchange, else by what steps spend on them.

    Args:
        point: what was measured.
        ranks: all of them, their steps with `warmup`.

    Returns:
        Always the same columns, None where they are unknown.
    """
    row: Row = dict.fromkeys(("comm_method", "pass_s", *(f"{name}{end}" for name in SHARES for end in ENDS)))
    row |= {"exchange_isolated_s": ranks[0].exchange_isolated_s, "comm_reason": ranks[0].exchange_reason}
    if any(name not in rank.steps for rank in ranks for name in PASS_COLUMNS):
        return row
    if any((rank.steps["part"] == "no_exchange").any() for rank in ranks):
        times = _in_turns(ranks)
        row["pass_s"] = _pass_s(point, ranks, "no_exchange")
        row |= {"comm_method": "difference", **_shares(times), **_overlap(times, ranks[0])}
    elif all(map(_marks_exchange, ranks)):
        row["pass_s"] = _pass_s(point, ranks, "window")
        if point.workers > 1 or point.servers:
            row |= {"comm_method": "wait", **_shares(_in_window(point, ranks))}
    elif point.workers == 1:
        row["pass_s"] = _pass_s(point, ranks, "window")
    return row


def _in_turns(ranks: Sequence[Measured]) -> _Times:
    """Times by pair of blocks."""
    with_it, free = (np.stack([rank.of_part("step_s", part) for rank in ranks]) for part in ("exchange", "no_exchange"))

    def by_pair(series: Series, part: str) -> Series:
        pairs = ranks[0].of_part("block", part) // 2
        return np.array([series[pairs == pair].sum() for pair in np.unique(pairs)])

    return _Times(
        steps=by_pair(with_it.mean(axis=0), "exchange"),
        longest=by_pair(free.max(axis=0), "no_exchange"),
        mean=by_pair(free.mean(axis=0), "no_exchange"),
        count=with_it.shape[1],
    )


def _in_window(point: Point, ranks: Sequence[Measured]) -> _Times:
    """Times by part of the window; within a sync period ranks don't wait for each other, so it counts as one step."""
    steps = [over_periods(rank.of_part("step_s"), point.period) for rank in ranks]
    works = [over_periods(_own_steps(rank), point.period) for rank in ranks]
    parts = min(PARTS, *map(len, steps))

    def by_part(series: Series) -> Series:
        return np.array([part.sum() for part in np.array_split(series, parts)])

    has_common_steps = not point.is_asynchronous or len(ranks) == 1
    return _Times(
        steps=np.mean([by_part(series) for series in steps], axis=0),
        longest=by_part(np.max(works, axis=0)) if has_common_steps else None,
        mean=np.mean([by_part(series) for series in works], axis=0),
        count=len(steps[0]),
    )


def _shares(times: _Times) -> Row:
    """Shares of a step with the exchange."""
    row = _columns_of("comm_share", share_of(times.steps - times.mean, times.steps))
    if times.longest is not None:
        row |= _columns_of("exchange_share", share_of(times.steps - times.longest, times.steps))
        row |= _columns_of("wait_share", share_of(times.longest - times.mean, times.steps))
    return row


def _overlap(times: _Times, rank: Measured) -> Row:
    """What of the exchange alone does not show in a step. Not kept in 0 to 1: that would hide how little is known."""
    isolated_s, error_s = rank.exchange_isolated_s, rank.exchange_isolated_error_s
    if not isolated_s or times.longest is None:
        return {}
    units = len(times.steps)
    shown = share_of(times.steps - times.longest, np.full(units, isolated_s * times.count / units))
    if shown.error is not None and error_s is not None:
        shown = replace(shown, error=math.hypot(shown.error, shown.value * error_s / isolated_s))
    return _columns_of("overlap_share", replace(shown, value=1 - shown.value))


def _columns_of(name: str, known: Share) -> Row:
    """A share, both ends of its 95 % interval, and its standard error."""
    half = known.half_width
    low, high = (None, None) if half is None else (known.value - half, known.value + half)
    return {name: known.value, f"{name}_low": low, f"{name}_high": high, f"{name}_error": known.error}


def _pass_s(point: Point, ranks: Sequence[Measured], part: str) -> float:
    """A forward/backward pass with its data: mean of the rank for which it takes longest, in seconds."""
    steps = [np.sum([rank.of_part(name, part) for name in PASS_COLUMNS], axis=0) for rank in ranks]
    return max(float(seconds.mean()) for seconds in steps) / point.accumulation


def own_work(rank: Measured, *, is_alone: bool = False) -> float | None:
    """What a rank's step takes without waiting for others, in seconds: the mean; None where it is unknown."""
    series = _own_steps(rank, is_alone=is_alone)
    return float(series.mean()) if len(series) else None


def _own_steps(rank: Measured, *, is_alone: bool = False) -> Series:
    """Own work of each step, in seconds: (steps,).

    Of the steps without the exchange; where there are none, without what steps spend on the exchange, where they mark
    it; else nothing, where there are others to wait for.
    """
    free = rank.of_part("step_s", "no_exchange")
    if not len(free) and _marks_exchange(rank):
        own: Series = rank.of_part("step_s") - sum(rank.of_part(name) for name in SPENT if name in rank.steps)
        return own
    return rank.of_part("step_s") if is_alone and not len(free) else free


def _marks_exchange(rank: Measured) -> bool:
    """Whether steps mark all that they spend on the exchange.

    A mode that marks any marks all of it, but for compression, which marks what it waits for also where most of the
    exchange hides behind backward; there `exchange_reason` says why no step was without it.
    """
    return "sync_s" in rank.steps and (rank.exchange_reason is None or "compress_s" not in rank.steps)


def skew_columns(ranks: Sequence[Measured], nodes: Sequence[str]) -> Row:
    """How much longer the slowest rank works than the fastest, and which one that is, where that can be told.

    Args:
        ranks: all of them.
        nodes: the host name of each.

    Returns:
        Always the same columns, None where they are unknown.
    """
    row: Row = {"rank_skew": None, "rank_skew_low": None, "straggler": None}
    if len(ranks) == 1:
        return {**row, "rank_skew": 0.0, "rank_skew_low": 0.0}
    series = [_own_steps(rank) for rank in ranks]
    if not all(map(len, series)):
        return row
    works = np.array([own.mean() for own in series])
    row["rank_skew"] = float(works.max() / works.min() - 1)
    bounds = _bounds(series)
    if bounds is None:
        return row
    slowest, fastest, mean = int(np.argmax(works)), int(np.argmin(works)), float(works.mean())
    surely = works[slowest] - bounds[slowest]
    least = max(surely / mean, surely / (works[fastest] + bounds[fastest])) - 1
    named = f"rank {slowest} on {nodes[slowest]}" if surely > mean else None
    return {**row, "rank_skew_low": max(0.0, float(least)), "straggler": named}


def input_columns(ranks: Sequence[Measured], *, straggler: str | None) -> Row:
    """What of a step workers spend on loading batches: their mean, without the one that the others wait for.

    What that one spends longer on it is in `wait_share` already.

    Args:
        ranks: all of them.
        straggler: the slowest, as `skew_columns` names it.

    Returns:
        `data_share` with its interval; nothing where the phase was not measured.
    """
    if any("data_s" not in rank.steps for rank in ranks):
        return {}
    usual = [rank for number, rank in enumerate(ranks) if not (straggler or "").startswith(f"rank {number} ")]
    data, steps = ([rank.of_part(name) for rank in usual] for name in ("data_s", "step_s"))
    parts = min(PARTS, *map(len, data), PARTS)

    def by_part(series: Sequence[Series]) -> Series:
        means: Series = np.mean([[part.sum() for part in np.array_split(one, parts)] for one in series], axis=0)
        return means

    return _columns_of("data_share", share_of(by_part(data), by_part(steps)))


def _bounds(series: Sequence[Series]) -> Series | None:
    """How far the mean of the farthest of so many equal ranks may lie from the mean of all; None from too few steps.

    What befalls all ranks in one step tells nothing apart, so the noise is that of each rank around the others. It is
    taken for at least as large as it is on the average rank: a rank may look quiet by chance.
    """
    count = min(map(len, series))
    works = np.stack([own[:count] for own in series])
    halves = [mean_half_width(away) for away in works - works.mean(axis=0)]
    if None in halves:
        return None
    known = np.array(halves, dtype=float)
    quantile = NormalDist().inv_cdf
    farthest = quantile(1 - NAMED_FALSELY / len(series)) / quantile(0.975)
    noise = farthest * np.maximum(known, np.sqrt(np.mean(known**2)))
    bounds: Series = np.maximum(noise, LEAST_HALF_WIDTH * works.mean())
    return bounds
