"""The own work of ranks, without waiting for others, and which of them is the slowest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from dtsweep.measure.statistics import (
    NOISE_FROM,
    Series,
    correlated_steps,
    mean_half_width,
    students_t,
)
from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.rank_result import Measured, trained_in_window
from dtsweep.sweep.settings import LEAST_HALF_WIDTH

_SPENT = ("sync_s", "compress_s")
"""Exposed exchange of a step."""

_NAMED_FALSELY = 0.01
"""Probability to name one of equal workers if steps are independent; below 5 % if they are not."""


def own_work(rank: Measured, *, is_alone: bool = False) -> float | None:
    """Mean time of a rank's step without waiting for others, in seconds.

    None where it is unknown.
    """
    series = own_steps(rank, is_alone=is_alone)
    if not len(series):
        return None
    return float(series.mean())


def own_steps(rank: Measured, *, is_alone: bool = False) -> Series:
    """Own work of each step, in seconds: (steps,).

    Of the steps without the exchange; where there are none, without what steps spend on the
    exchange, where they mark it; else nothing, where there are others to wait for.
    """
    free = rank.of_part("step_s", "no_exchange")
    if not len(free) and marks_exchange(rank):
        steps: Series = rank.of_part("step_s") - sum(
            rank.of_part(name) for name in _SPENT if name in rank.steps
        )
        return steps
    if is_alone and not len(free):
        return rank.of_part("step_s")
    return free


def has_quick_turn(rank: Measured) -> bool:
    """True if one turn without the exchange follows the window, not rounds with and without."""
    parts = rank.steps["part"]
    return bool((parts == "no_exchange").any() and not (parts == "exchange").any())


def correlated_own_steps(ranks: Sequence[Measured]) -> float:
    """Number of a rank's own steps per independent step in the window: at least 1, mean of ranks.

    A few steps after a window hardly show that they are correlated. In the window loading and
    forward are a rank's own; a whole step is as long on all ranks. What the ranks have in common
    falls out.
    """
    if any("forward_s" not in rank.steps for rank in ranks):
        return 1.0
    series = [rank.of_part("data_s") + rank.of_part("forward_s") for rank in ranks]
    count = min(map(len, series))
    if count < NOISE_FROM:
        return 1.0
    works = np.stack([times[:count] for times in series])
    return float(
        np.mean([correlated_steps(deviations) for deviations in works - works.mean(axis=0)])
    )


def marks_exchange(rank: Measured) -> bool:
    """True if steps mark all that they spend on the exchange.

    A mode that marks any marks all of it, but for compression, which marks what it waits for also
    where most of the exchange hides behind backward; there `exchange_reason` says why no step was
    without it.
    """
    return "sync_s" in rank.steps and (
        rank.exchange_reason is None or "compress_s" not in rank.steps
    )


def skew_columns(ranks: Sequence[Measured], nodes: Sequence[str]) -> Row:
    """Excess time of the slowest rank over the fastest, and its rank if it is significant.

    Ranks are compared by the steps in which they trained.

    Args:
        ranks: all of them.
        nodes: the host name of each.

    Returns:
        Always the same columns, None where they are unknown.
    """
    row: Row = {"rank_skew": None, "rank_skew_low": None, "straggler": None}
    if len(ranks) == 1:
        return {**row, "rank_skew": 0.0, "rank_skew_low": 0.0}
    trained = trained_in_window(ranks)
    numbers = [*trained]
    series = [own_steps(rank) for rank in trained.values()]
    if not series or not all(map(len, series)):
        return row
    works = np.array([times.mean() for times in series])
    row["rank_skew"] = float(works.max() / works.min() - 1)
    bounds = _bounds(
        series, correlated=correlated_own_steps(ranks) if has_quick_turn(ranks[0]) else 1.0
    )
    if bounds is None:
        return row
    slowest = int(np.argmax(works))
    fastest = int(np.argmin(works))
    mean = float(works.mean())
    surely = works[slowest] - bounds[slowest]
    least = max(surely / mean, surely / (works[fastest] + bounds[fastest])) - 1
    named = None
    if surely > mean:
        named = f"rank {numbers[slowest]} on {nodes[numbers[slowest]]}"
    return {**row, "rank_skew_low": max(0.0, float(least)), "straggler": named}


def _bounds(series: Sequence[Series], *, correlated: float) -> Series | None:
    """Distance of the farthest of equal ranks from the mean of all, as a bound for each.

    What affects all ranks in one step does not distinguish them, so the noise is the spread of each
    rank around the others. It counts as at least the average rank's: a rank may look quiet by
    chance. None from too few steps.

    Args:
        series: (steps,) seconds of own work, of each rank.
        correlated: steps that are worth one independent step, at least.
    """
    count = min(map(len, series))
    if count < NOISE_FROM:
        return None
    works = np.stack([times[:count] for times in series])
    half_widths = np.array(
        [_half_width(deviations, correlated) for deviations in works - works.mean(axis=0)]
    )
    quantile = NormalDist().inv_cdf
    farthest = quantile(1 - _NAMED_FALSELY / len(series)) / quantile(0.975)
    noise = farthest * np.maximum(half_widths, np.sqrt(np.mean(half_widths**2)))
    bounds: Series = np.maximum(noise, LEAST_HALF_WIDTH * works.mean())
    return bounds


def _half_width(series: Series, correlated: float) -> float:
    """Half of a mean's 95 % interval, in seconds, if it has enough independent steps."""
    half_s = mean_half_width(series)
    assert half_s is not None, "there are enough steps"
    if correlated == 1.0:
        return half_s
    units = max(2.0, len(series) / max(correlated, correlated_steps(series)))
    error_s = float(series.std(ddof=1)) / math.sqrt(units)
    return max(half_s, float(students_t(units - 1)) * error_s)
