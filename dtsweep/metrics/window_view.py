"""The ranks' windows as one series: where its warm-up ends, what it says of the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import (
    Series,
    mean_half_width,
    over_periods,
    reported_half_width,
    standard_error,
    step_times_together,
    steps_in,
    with_unseen,
)
from dtsweep.measure.warmup import Steadiness, steadiness
from dtsweep.metrics.rank_result import Measured, Steps, samples_of
from dtsweep.sweep.modes import OPEN_LOOP
from dtsweep.sweep.point import Point


def mark_warmup(point: Point, ranks: Sequence[Measured]) -> list[Measured]:
    """Mark the warm-up steps: those before the window, and those at its start that are not steady.

    Args:
        point: what was measured.
        ranks: what each rank measured.

    Returns:
        The same with `warmup` among the columns of `steps`, and with `steadiness`. The steady part
        begins by the common steps of ranks in step, else by each rank's own. All of the window is
        kept if no part is steady, if asynchronous ranks were steady at different times, or in turn.
    """
    if not ranks:
        return []
    if point.sync == OPEN_LOOP:
        return [_as_sent(rank) for rank in ranks]
    windows = [rank.steps["part"] == "window" for rank in ranks]
    series = [rank.steps["step_s"][window] for rank, window in zip(ranks, windows, strict=True)]
    in_step = not point.is_asynchronous and len({len(times) for times in series}) == 1
    if ranks[0].is_in_turn:
        # Its warm-up lies before its turns; a machine that changes under them is no drift of it.
        steady_states = [Steadiness(start=0, drift=None, is_sure=False)] * len(series)
    elif in_step:
        starts = [
            rank.steps["start_s"][window] for rank, window in zip(ranks, windows, strict=True)
        ]
        common = step_times_together(starts, series, period=point.period)
        steady_states = [steadiness(common)] * len(series)
    else:
        steady_states = [steadiness(over_periods(times, point.period)) for times in series]
    counts = [(state.start or 0) * point.period for state in steady_states]
    if point.is_asynchronous and not _are_steady_at_once([rank.steps for rank in ranks], counts):
        steady_states = [replace(state, start=None, unsettled=math.inf) for state in steady_states]
        counts = [0] * len(steady_states)
    marked = []
    for rank, window, state, count in zip(ranks, windows, steady_states, counts, strict=True):
        part = np.where(window & (np.cumsum(window) <= count), "warmup", rank.steps["part"])
        steps = {**rank.steps, "part": part, "warmup": part == "warmup"}
        marked.append(replace(rank, steps=steps, steadiness=state))
    return marked


def _as_sent(rank: Measured) -> Measured:
    """Requests with the warm-up that their client has sent, whatever their latencies are."""
    steps = {**rank.steps, "warmup": rank.steps["part"] == "warmup"}
    steadiness = Steadiness(start=0, drift=None, is_sure=False)
    return replace(rank, steps=steps, steadiness=steadiness)


@dataclass(frozen=True, kw_only=True)
class WindowView:
    """The ranks' windows as one series, and what it says of the rate."""

    steps: Series
    """(steps,) seconds in order of time: common steps, or the own steps of all ranks."""

    strata: NDArray[np.int64]
    """(steps,) the kind of each step: whose it is, and its place in the sync period."""

    periods: Series
    """(periods,) seconds: mean steps of sync periods."""

    rate: float
    """Samples per second."""

    share: float | None
    """Half of the 95 % interval of the mean step, and of the rate, as a share.

    None where the steps are too few.
    """

    error: float | None
    """The standard error of both, as a share of them."""

    unanswered: int = 0
    """Requests of an open loop that are slower than all of the steps."""


def view_of(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """View the windows of all ranks: steps of all ranks together, or each rank's own.

    Args:
        point: what was measured.
        ranks: what each rank measured, its steps with `warmup`.
    """
    if point.is_asynchronous:
        return _view_asynchronous(point, ranks)
    return _view_in_step(point, ranks)


def _view_in_step(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """View ranks that wait for each other at the end of each period, and step alone in between."""
    starts = [rank.of_part("start_s") for rank in ranks]
    times = [rank.of_part("step_s") for rank in ranks]
    periods = step_times_together(starts, times, period=point.period)
    half = reported_half_width(periods, period=point.period)
    error = standard_error(periods)
    mean = float(periods.mean())
    one_stratum = np.zeros(len(periods), np.int64)
    if point.period == 1:
        steps, strata = (periods, one_stratum)
    else:
        steps, strata = _in_time(ranks, period=point.period)
    return WindowView(
        steps=steps,
        strata=strata,
        periods=periods,
        # Not by the window's wall: what a worker does after its last step would weigh more in a
        # short window.
        rate=point.global_batch / mean,
        share=None if half is None else half / mean,
        error=None if error is None else error / mean,
    )


def _view_asynchronous(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """View workers whose steps are their own: all of them count."""
    steps, strata = _in_time(ranks, period=point.period)
    rate, share, error = _asynchronous_rate(point, ranks)
    # Parts of a period that a rank has not ended don't count.
    periods = np.concatenate([over_periods(rank.of_part("step_s"), point.period) for rank in ranks])
    return WindowView(
        steps=steps,
        strata=strata,
        periods=steps if point.period == 1 else periods,
        rate=rate,
        share=share,
        error=error,
    )


def window_s(point: Point, ranks: Sequence[Measured]) -> float:
    """From the first measured step to the end of the last worker's work."""
    starts = [float(rank.of_part("start_s")[0]) for rank in ranks]
    # Ranks that step together begin when the last one has ended the step before.
    return max(rank.window_s for rank in ranks) - (
        min(starts) if point.is_asynchronous else max(starts)
    )


def _in_time(ranks: Sequence[Measured], *, period: int = 1) -> tuple[Series, NDArray[np.int64]]:
    """The steps in which ranks trained, in the order in which they ended, and the kind of each."""
    trained = [rank.while_training() for rank in ranks]
    series = [rank.of_part("step_s") for rank in trained]
    times = np.concatenate(series)
    starts = np.concatenate([rank.of_part("start_s") for rank in trained])
    strata = np.concatenate(
        [rank * period + np.arange(len(steps)) % period for rank, steps in enumerate(series)]
    )
    order = np.argsort(starts + times, kind="stable")
    return times[order], strata[order]


def _are_steady_at_once(ranks: Sequence[Steps], counts: Sequence[int]) -> bool:
    """True if all ranks are steady for at least half of the time that all windows share."""
    windows = [steps["start_s"][steps["part"] == "window"] for steps in ranks]
    last = [steps["step_s"][steps["part"] == "window"][-1] for steps in ranks]
    ended = min(starts[-1] + seconds for starts, seconds in zip(windows, last, strict=True))
    began = max(starts[count] for starts, count in zip(windows, counts, strict=True))
    return bool(ended - began >= 0.5 * (ended - max(starts[0] for starts in windows)))


@dataclass(frozen=True, kw_only=True)
class _Span:
    """The measured steps of one rank on the common clock, in seconds."""

    times: Series
    ends: Series
    is_used: NDArray[np.bool_]
    """(steps,) true if an update was made from the step's gradients."""

    @property
    def start(self) -> float:
        return float(self.ends[0] - self.times[0])

    def steps_until(self, at: Series) -> Series:
        """Number of steps ended by then, the one under way by its share."""
        counts: Series = steps_in(self.ends - self.start, at - self.start)
        return counts

    def used_until(self, at: Series) -> Series:
        """As `steps_until`, without the steps whose gradients were dropped."""
        used = np.concatenate([[0], np.cumsum(self.is_used)])
        counts: Series = np.interp(self.steps_until(at), np.arange(len(used)), used)
        return counts


def _spans(ranks: Sequence[Measured]) -> tuple[list[_Span], NDArray[np.float64]]:
    """Measured steps of each rank, and begin and end of the time in which all have steps."""
    spans = [
        _Span(
            times=rank.of_part("step_s"),
            ends=rank.of_part("start_s") + rank.of_part("step_s"),
            is_used=rank.is_used(),
        )
        for rank in ranks
    ]
    began = max(span.start for span in spans)
    return spans, np.array([began, min(float(span.ends[-1]) for span in spans)])


def dropped_share(ranks: Sequence[Measured]) -> float | None:
    """Share of the steps whose gradients were dropped, in the time in which all ranks had steps.

    When some have ended, fewer gradients are dropped. None where none can be.
    """
    if not any(len(rank.dropped) for rank in ranks):
        return None
    spans, edges = _spans(ranks)
    used = sum(np.diff(span.used_until(edges))[0] for span in spans)
    return float(1 - used / sum(np.diff(span.steps_until(edges))[0] for span in spans))


def _asynchronous_rate(
    point: Point, ranks: Sequence[Measured]
) -> tuple[float, float | None, float | None]:
    """Samples per second while all workers were steady, with its error.

    The 95 % half-width and the standard error are shares of it.

    The window ends with the first worker that stops; the others' step under way then counts by its
    share. Samples of dropped gradients don't count. How well the rate is known is seen in bins of
    time, each as long as a period of the slowest worker: what all of them do in one. Workers share
    servers, cores and, with a bound, each other's pace, so that their errors don't average out.
    """
    spans, common = _spans(ranks)
    began, ended = common
    counts = np.array([np.diff(span.steps_until(common))[0] for span in spans])
    samples = samples_of(point)
    rate = samples * float(sum(np.diff(span.used_until(common))[0] for span in spans))
    rate /= ended - began
    edges = np.linspace(began, ended, max(1, int(counts.min()) // point.period) + 1)
    bins = samples * np.sum([np.diff(span.used_until(edges)) for span in spans], axis=0)
    half = mean_half_width(bins)
    error = standard_error(bins)
    mean = float(bins.mean())
    if half is None or error is None:
        return rate, None, None
    mean_s = (ended - began) * len(spans) / float(counts.sum())
    return (
        rate,
        with_unseen(half / mean * mean_s, mean_s=mean_s, steps=int(counts.min())) / mean_s,
        error / mean,
    )
