"""The ranks' windows as one series: where its warm-up ends, what it says of the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtsweep.measure.statistics import (
    Series,
    effective_count,
    mean_half_width,
    over_periods,
    reported_half_width,
    slowest_rank,
    steps_in,
    with_unseen,
)
from dtsweep.measure.warmup import steadiness
from dtsweep.metrics.rank_result import Measured, Steps
from dtsweep.sweep.point import Point


def mark_warmup(point: Point, ranks: Sequence[Measured]) -> list[Measured]:
    """Mark which steps are warm-up: those before the window, and those at its start that are not steady yet.

    Args:
        point: what was measured.
        ranks: what each rank measured.

    Returns:
        The same with `warmup` among the columns of `steps`, and with `steadiness`. Where ranks step together the
        slowest rank's steps say where the steady part begins; where they don't, each rank's own. If no part is steady,
        nothing of the window is left out; nor if ranks that step apart were steady at different times.
    """
    if not ranks:
        return []
    windows = [rank.steps["part"] == "window" for rank in ranks]
    series = [rank.steps["step_s"][window] for rank, window in zip(ranks, windows, strict=True)]
    together = not point.is_asynchronous and len({len(times) for times in series}) == 1
    if together:
        found = [steadiness(_together(point, series))] * len(series)
    else:
        found = [steadiness(over_periods(times, point.period)) for times in series]
    counts = [(one.start or 0) * point.period for one in found]
    if point.is_asynchronous and not _steady_together([rank.steps for rank in ranks], counts):
        found, counts = [replace(one, start=None) for one in found], [0] * len(found)
    marked = []
    for rank, window, one, count in zip(ranks, windows, found, counts, strict=True):
        part = np.where(window & (np.cumsum(window) <= count), "warmup", rank.steps["part"])
        steps = {**rank.steps, "part": part, "warmup": part == "warmup"}
        marked.append(replace(rank, steps=steps, steadiness=one))
    return marked


@dataclass(frozen=True, kw_only=True)
class WindowView:
    """The ranks' windows as one series, and what it says of the rate."""

    steps: Series
    """(steps,) seconds."""

    periods: Series
    """(periods,) seconds: mean steps of sync periods."""

    rate: float
    """Samples per second."""

    share: float | None
    """Half of the 95 % interval of the mean step, and of the rate, as a share; None where the steps are too few."""

    worth: float | None
    """Independent steps that the series is worth; None where a rank has too few."""


def _step_together(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """A step is one of all ranks: the slowest rank's."""
    series = [rank.of_part("step_s") for rank in ranks]
    steps, periods = slowest_rank(series), _together(point, series)
    half = reported_half_width(periods, period=point.period)
    return WindowView(
        steps=steps,
        periods=periods,
        rate=point.global_batch * len(steps) / window_s(ranks),
        share=half / float(periods.mean()) if half is not None else None,
        worth=_worth([steps]),
    )


def _step_apart(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """A step is a worker's own: all of them count."""
    series = [rank.of_part("step_s") for rank in ranks]
    steps = np.concatenate(series)
    rate, share = _asynchronous_rate(point, ranks)
    return WindowView(steps=steps, periods=steps, rate=rate, share=share, worth=_worth(series))


def window_s(ranks: Sequence[Measured]) -> float:
    """From the first measured step to the end of the last worker's work."""
    return max(float(rank.window_s - rank.of_part("start_s")[0]) for rank in ranks)


def _together(point: Point, series: Sequence[Series]) -> Series:
    """Per sync period, the mean step of its slowest rank: (periods,) seconds.

    Within a period ranks don't wait for each other: what one loses in a step it may gain in the next.
    """
    return slowest_rank([over_periods(times, point.period) for times in series])


def _steady_together(ranks: Sequence[Steps], found: Sequence[int]) -> bool:
    """Whether all ranks are steady for at least half of the time in which all are in their windows."""
    windows = [steps["start_s"][steps["part"] == "window"] for steps in ranks]
    last = [steps["step_s"][steps["part"] == "window"][-1] for steps in ranks]
    ended = min(starts[-1] + seconds for starts, seconds in zip(windows, last, strict=True))
    began = max(starts[count] for starts, count in zip(windows, found, strict=True))
    return bool(ended - began >= 0.5 * (ended - max(starts[0] for starts in windows)))


@dataclass(frozen=True, kw_only=True)
class _Span:
    """The measured steps of one rank on the common clock, in seconds."""

    times: Series
    ends: Series

    @property
    def start(self) -> float:
        return float(self.ends[0] - self.times[0])

    def steps_until(self, at: float) -> float:
        """How many steps ended by then, the one under way by its share."""
        return steps_in(self.ends - self.start, at - self.start)

    def inside(self, began: float, ended: float) -> Series:
        """The times of the steps that lie whole between two moments."""
        inside: Series = self.times[(self.ends - self.times >= began) & (self.ends <= ended)]
        return inside


def _asynchronous_rate(point: Point, ranks: Sequence[Measured]) -> tuple[float, float | None]:
    """Samples per second while all workers were steadily at work, and its 95 % half-width as a share of it.

    The window ends with the first worker that stops; the others' step under way then counts by its share.
    """
    times = [(rank.of_part("start_s"), rank.of_part("step_s")) for rank in ranks]
    spans = [_Span(times=seconds, ends=starts + seconds) for starts, seconds in times]
    began, ended = max(span.start for span in spans), min(float(span.ends[-1]) for span in spans)
    steps = sum(span.steps_until(ended) - span.steps_until(began) for span in spans)
    rate = steps * point.samples_per_worker_step / (ended - began)
    counted = [span.inside(began, ended) for span in spans]
    halves = [mean_half_width(seconds) for seconds in counted]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return rate, None
    # Workers vary independently: the squares of their rates' errors add up.
    means = np.array([seconds.mean() for seconds in counted])
    share = float(np.sqrt(np.sum(np.square(known / means**2))) / np.sum(1 / means))
    mean_s = len(means) / float(np.sum(1 / means))
    return rate, with_unseen(share * mean_s, mean_s=mean_s, steps=min(map(len, counted))) / mean_s


def _worth(series: Sequence[Series]) -> float | None:
    """How many independent steps those of one or several workers are worth; None where one has too few."""
    return sum(map(effective_count, series)) if min(map(len, series)) > 2 else None


def view_of(point: Point, ranks: Sequence[Measured]) -> WindowView:
    """View the windows of all ranks as the point's steps are: of all ranks together, or each rank's own.

    Args:
        point: what was measured.
        ranks: what each rank measured, its steps with `warmup`.
    """
    return _step_apart(point, ranks) if point.is_asynchronous else _step_together(point, ranks)
