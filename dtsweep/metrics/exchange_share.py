"""Shares of a step: the exchange, waiting for the slowest worker, and loading batches.

Exchange is what a step takes longer than the longest own work of a rank in it, wait what that is
longer than the ranks' mean. Neither depends on how many steps were timed, nor on how long blocks
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.measure.statistics import NOISE_FROM, Series, correlated_steps, over_periods
from dtsweep.measure.turns import Share, share_of
from dtsweep.metrics.breakdown import PASS_COLUMNS, Row
from dtsweep.metrics.rank_result import Measured, trained_in_window
from dtsweep.metrics.skew import correlated_own_steps, has_quick_turn, marks_exchange, own_steps
from dtsweep.metrics.window_view import view_of
from dtsweep.sweep.point import Point

_SHARES = ("comm_share", "exchange_share", "wait_share", "overlap_share")
_ENDS = ("", "_low", "_high", "_error")
"""Columns that have an interval, and the names of its parts."""

_PARTS = 8
"""Parts of a window, each of them taken to vary by itself."""


@dataclass(frozen=True, kw_only=True)
class _Times:
    """Seconds of each unit, a pair of blocks or a part of the window: (units,), summed."""

    steps: Series
    """With the exchange, mean of the ranks: in step all take as long."""

    longest: Series | None
    """Own work, of each step the time of the rank that works longest.

    None where ranks have no step in common.
    """

    mean: Series
    """Own work, mean of the ranks."""

    count: int
    """Steps of all units together, with the exchange."""


def exchange_columns(point: Point, ranks: Sequence[Measured]) -> Row:
    """Exchange and wait by the difference to steps without the exchange, else by marked time.

    Args:
        point: what was measured.
        ranks: all of them, their steps with `warmup`.

    Returns:
        Always the same columns, None where they are unknown.
    """
    row: Row = dict.fromkeys(
        ("comm_method", "pass_s", *(f"{name}{end}" for name in _SHARES for end in _ENDS))
    )
    row |= {
        "exchange_isolated_s": ranks[0].exchange_isolated_s,
        "comm_reason": ranks[0].exchange_reason,
    }
    has_passes = all(name in rank.steps for rank in ranks for name in PASS_COLUMNS)
    if any((rank.steps["part"] == "no_exchange").any() for rank in ranks):
        row["comm_method"] = "difference"
        if has_passes:
            row["pass_s"] = _pass_s(point, ranks, "no_exchange")
        row |= _by_window(point, ranks) if has_quick_turn(ranks[0]) else _by_pairs(ranks)
    elif not has_passes:
        return row
    elif all(map(marks_exchange, ranks)):
        row["pass_s"] = _pass_s(point, ranks, "window")
        if point.workers > 1 or point.servers:
            row |= {"comm_method": "wait", **_shares(_in_window(point, ranks))}
    elif point.workers == 1:
        row["pass_s"] = _pass_s(point, ranks, "window")
    return row


def _by_pairs(ranks: Sequence[Measured]) -> Row:
    """Shares of a step, by pairs of blocks with and without the exchange."""
    times = _in_turns(ranks)
    isolated_s = ranks[0].exchange_isolated_s
    row = _shares(times)
    if isolated_s and times.longest is not None:
        units = len(times.steps)
        alone = np.full(units, isolated_s * times.count / units)
        row |= _overlap(share_of(times.steps - times.longest, alone), ranks[0])
    return row


def _by_window(point: Point, ranks: Sequence[Measured]) -> Row:
    """Shares of a step, from the window and one turn of steps without the exchange after it."""
    window = view_of(point, ranks).periods
    free = np.stack([rank.of_part("step_s", "no_exchange") for rank in ranks])
    longest = free.max(axis=0)
    mean = free.mean(axis=0)
    exchange = _share_beyond(window, longest)
    row = _columns_of("comm_share", _share_beyond(window, mean))
    row |= _columns_of("exchange_share", exchange)
    wait = _wait_share(window, longest - mean, mean, correlated=correlated_own_steps(ranks))
    row |= _columns_of("wait_share", wait)
    if isolated_s := ranks[0].exchange_isolated_s:
        exposed_per_isolated = float(window.mean()) / isolated_s
        error = None
        if exchange.error is not None:
            error = exchange.error * exposed_per_isolated
        row |= _overlap(
            Share(value=exchange.value * exposed_per_isolated, error=error, units=exchange.units),
            ranks[0],
        )
    return row


def _share_beyond(window: Series, turn: Series) -> Share:
    """Share of the window's mean step that lies beyond the mean step of a turn.

    The turn counts as one more stretch of the window. Its n steps are as noisy as n steps of the
    window, with their autocorrelation, relative to the mean; or as its own steps show, if that is
    more. So the interval holds what varies more slowly than the turn lasts, as far as the window
    shows it.

    Args:
        window: (steps,) seconds.
        turn: (steps,) seconds.
    """
    ratio = float(turn.mean() / window.mean())
    if len(window) < NOISE_FROM:
        return Share(value=1 - ratio, error=None, units=len(turn))
    error, units = _error_of_mean(window)
    error_of_turn = error * math.sqrt(len(window) / len(turn))
    if len(turn) >= NOISE_FROM:
        own_error, own_units = _error_of_mean(turn)
        if own_error > error_of_turn:
            error_of_turn, units = own_error, min(units, own_units)
    return Share(value=1 - ratio, error=ratio * math.hypot(error, error_of_turn), units=units)


def _wait_share(window: Series, wait: Series, own_time: Series, *, correlated: float) -> Share:
    """Share of the window's mean step that ranks wait for the slowest one, by the steps of a turn.

    Args:
        window: (steps,) seconds.
        wait: (steps,) seconds of the turn: the longest own step of a rank, less the mean of the
            ranks.
        own_time: (steps,) seconds of the turn: the mean of the ranks. Steps too few to show their
            noise vary as these do.
        correlated: own steps that are worth one independent step, by the window.
    """
    value = float(wait.mean() / window.mean())
    if len(wait) < NOISE_FROM or len(window) < NOISE_FROM:
        beyond = _share_beyond(window, own_time)
        return Share(value=value, error=beyond.error, units=beyond.units)
    units = max(2, int(len(wait) / max(correlated, correlated_steps(wait))))
    error_s = float(wait.std(ddof=1)) / math.sqrt(units)
    return Share(value=value, error=error_s / float(window.mean()), units=units)


def _error_of_mean(series: Series) -> tuple[float, int]:
    """Relative standard error of a mean, and its number of independent steps."""
    units = max(NOISE_FROM, int(len(series) / correlated_steps(series)))
    return float(series.std(ddof=1) / series.mean()) / math.sqrt(units), units


def _in_turns(ranks: Sequence[Measured]) -> _Times:
    """Times by pair of blocks."""
    with_it, free = (
        np.stack([rank.of_part("step_s", part) for rank in ranks])
        for part in ("exchange", "no_exchange")
    )

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
    """Times by part of the window.

    Within a sync period ranks don't wait for each other, so it counts as one step.
    """
    steps = [over_periods(rank.of_part("step_s"), point.period) for rank in ranks]
    works = [over_periods(own_steps(rank), point.period) for rank in ranks]
    has_common_steps = not point.is_asynchronous or len(ranks) == 1
    longest = works
    if point.draws_participants:
        # A worker that is not drawn neither works nor waits for one that is slow.
        trains = np.array([over_periods(rank.of_part("trains"), point.period) for rank in ranks])
        longest = [np.where(trains, works, 0.0).max(axis=0)]
        steps, works = ([np.average(one, axis=0, weights=trains)] for one in (steps, works))
    parts = min(_PARTS, *map(len, steps))

    def by_part(series: Series) -> Series:
        return np.array([part.sum() for part in np.array_split(series, parts)])

    return _Times(
        steps=np.mean([by_part(series) for series in steps], axis=0),
        longest=by_part(np.max(longest, axis=0)) if has_common_steps else None,
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


def _overlap(shown: Share, rank: Measured) -> Row:
    """Part of the isolated exchange that is hidden in a step.

    Args:
        shown: what does, as a share of the exchange alone.
        rank: that timed the exchange alone.
    """
    isolated_s = rank.exchange_isolated_s
    error_s = rank.exchange_isolated_error_s
    if isolated_s and shown.error is not None and error_s is not None:
        shown = replace(shown, error=math.hypot(shown.error, shown.value * error_s / isolated_s))
    return _columns_of("overlap_share", replace(shown, value=1 - shown.value))


def _columns_of(name: str, share: Share) -> Row:
    """A share, both ends of its 95 % interval, and its standard error."""
    half = share.half_width
    if half is None:
        low, high = (None, None)
    else:
        low = share.value - half
        high = share.value + half
    return {
        name: share.value,
        f"{name}_low": low,
        f"{name}_high": high,
        f"{name}_error": share.error,
    }


def _pass_s(point: Point, ranks: Sequence[Measured], part: str) -> float:
    """Forward/backward pass with its data: mean of the slowest rank, in seconds."""
    trained = trained_in_window(ranks).values()
    steps = [
        np.sum([rank.of_part(name, part) for name in PASS_COLUMNS], axis=0) for rank in trained
    ]
    return max(float(seconds.mean()) for seconds in steps) / point.accumulation


def input_columns(ranks: Sequence[Measured], *, straggler: str | None) -> Row:
    """Mean share of a step for loading batches, without the worker that the others wait for.

    What that one spends longer on it is in `wait_share` already.

    Args:
        ranks: all of them.
        straggler: the slowest, as `skew_columns` names it.

    Returns:
        `data_share` with its interval; nothing where the phase was not measured.
    """
    if any("data_s" not in rank.steps for rank in ranks):
        return {}
    usual = [
        rank
        for number, rank in trained_in_window(ranks).items()
        if not (straggler or "").startswith(f"rank {number} ")
    ]
    data, steps = ([rank.of_part(name) for rank in usual] for name in ("data_s", "step_s"))
    parts = min(_PARTS, *map(len, data), _PARTS)

    def by_part(series: Sequence[Series]) -> Series:
        means: Series = np.mean(
            [[part.sum() for part in np.array_split(one, parts)] for one in series], axis=0
        )
        return means

    return _columns_of("data_share", share_of(by_part(data), by_part(steps)))
