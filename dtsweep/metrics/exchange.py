"""What a step spends on the exchange, on waiting for the slowest worker, and on loading batches.

Exchange is what a step takes longer than the longest own work of a rank in it, wait what that is longer than the ranks'
mean. Neither depends on how many steps were timed, nor on how long blocks are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.measure.statistics import Series, correlation_time, over_periods, standard_error
from dtsweep.measure.turns import Share, share_of
from dtsweep.metrics.breakdown import PASS_COLUMNS, Row
from dtsweep.metrics.rank_result import Measured
from dtsweep.metrics.skew import marks_exchange, own_steps
from dtsweep.metrics.window_view import view_of
from dtsweep.sweep.point import Point

SHARES, ENDS = ("comm_share", "exchange_share", "wait_share", "overlap_share"), ("", "_low", "_high", "_error")
"""Columns that have an interval, and the names of its parts."""

FEWEST_STEPS = 3
"""Steps without the exchange that tell their own noise."""

PARTS = 8
"""Parts of a window, of which each is taken to vary by itself."""


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
        row["pass_s"] = _pass_s(point, ranks, "no_exchange")
        row |= {"comm_method": "difference", **(_by_pairs(ranks) if _has_pairs(ranks) else _by_window(point, ranks))}
    elif all(map(marks_exchange, ranks)):
        row["pass_s"] = _pass_s(point, ranks, "window")
        if point.workers > 1 or point.servers:
            row |= {"comm_method": "wait", **_shares(_in_window(point, ranks))}
    elif point.workers == 1:
        row["pass_s"] = _pass_s(point, ranks, "window")
    return row


def _has_pairs(ranks: Sequence[Measured]) -> bool:
    """True if there are rounds of blocks after the window, not one turn without the exchange alone."""
    return bool((ranks[0].steps["part"] == "exchange").any())


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
    """Shares of a step, by the window and one turn of steps without the exchange that follows it.

    The turn is one more stretch of the same machine and is as noisy as the window: a turn of n steps as n steps of the
    window, relative to their mean and with their autocorrelation, or as its own steps say if that is more. So the
    interval holds what varies more slowly than the turn lasts, which its own steps do not show.
    """
    window = view_of(point, ranks).periods
    free = np.stack([rank.of_part("step_s", "no_exchange") for rank in ranks])
    longest, mean = free.max(axis=0), free.mean(axis=0)
    exchange = _share_left(window, longest)
    row = _columns_of("comm_share", _share_left(window, mean))
    row |= _columns_of("exchange_share", exchange)
    row |= _columns_of("wait_share", _wait_share(window, longest - mean, mean))
    if isolated_s := ranks[0].exchange_isolated_s:
        shown = exchange.value * float(window.mean()) / isolated_s
        error = None if exchange.error is None else exchange.error * float(window.mean()) / isolated_s
        row |= _overlap(Share(value=shown, error=error, units=exchange.units), ranks[0])
    return row


def _share_left(window: Series, turn: Series) -> Share:
    """What the steps of a turn leave of the window's mean step, as a share of it.

    Args:
        window: (steps,) seconds.
        turn: (steps,) seconds.
    """
    ratio = float(turn.mean() / window.mean())
    error_s = standard_error(window)
    if error_s is None:
        return Share(value=1 - ratio, error=None, units=len(turn))
    error, units = error_s / float(window.mean()), _independent(window)
    of_turn = error * math.sqrt(len(window) / len(turn))
    own_s = standard_error(turn)
    if own_s is not None and own_s / float(turn.mean()) > of_turn:
        of_turn, units = own_s / float(turn.mean()), min(units, _independent(turn))
    return Share(value=1 - ratio, error=ratio * math.hypot(error, of_turn), units=units)


def _wait_share(window: Series, wait: Series, own: Series) -> Share:
    """What the steps of a turn wait for the slowest rank, as a share of the window's mean step.

    Args:
        window: (steps,) seconds.
        wait: (steps,) seconds of the turn: the longest own step of a rank, less the mean of the ranks.
        own: (steps,) seconds of the turn: the mean of the ranks. Steps too few to show their noise vary as these do.
    """
    value = float(wait.mean() / window.mean())
    if len(wait) < FEWEST_STEPS:
        left = _share_left(window, own)
        return Share(value=value, error=left.error, units=left.units)
    # So few steps hardly show that they resemble each other; those of the window do.
    alike = min(max(correlation_time(wait), correlation_time(window)), len(wait) / FEWEST_STEPS)
    error_s = float(wait.std(ddof=1)) * math.sqrt(alike / len(wait))
    return Share(value=value, error=error_s / float(window.mean()), units=int(len(wait) / alike))


def _independent(series: Series) -> int:
    """How many independent steps a series is worth, at least `FEWEST_STEPS`."""
    return max(FEWEST_STEPS, int(len(series) / correlation_time(series)))


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
    works = [over_periods(own_steps(rank), point.period) for rank in ranks]
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


def _overlap(shown: Share, rank: Measured) -> Row:
    """What of the exchange alone does not show in a step. Not kept in 0 to 1: that would hide how little is known.

    Args:
        shown: what does, as a share of the exchange alone.
        rank: that timed the exchange alone.
    """
    isolated_s, error_s = rank.exchange_isolated_s, rank.exchange_isolated_error_s
    if isolated_s and shown.error is not None and error_s is not None:
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
