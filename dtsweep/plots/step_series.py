"""Step times of trials from the rows of all ranks, thinned so that extremes stay."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dtsweep.plots.numbers import rounded
from dtsweep.results.store import Results, frame_of

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]

MOST_STEPS = 200
"""Largest number of steps of a thinned series."""

_DIGITS = 5
"""Significant digits of a step time."""

_BEFORE_THE_END = ("warmup", "window")
"""Parts of the steps that are shown; those after the window serve other measurements."""


@dataclass(frozen=True, kw_only=True)
class StepSeries:
    """Step times of one attempt, thinned."""

    steps: tuple[int, ...]
    """Index of each step, ascending."""
    step_ms: tuple[float, ...]
    """Time of each step, to five digits."""
    warmup: int
    """Number of these steps that belong to the warm-up; they are the first ones."""
    warmup_end: int | None
    """Index of the first measured step; None without warm-up, or if there is only warm-up."""
    median_ms: float | None
    """Median of all measured steps; None if there are none."""
    count: int
    """Number of steps before thinning."""


def series_of(
    results: Results, attempt_ids: Collection[str], *, most: int = MOST_STEPS
) -> dict[str, StepSeries]:
    """Read the step times of attempts, in one pass over the table of steps.

    Args:
        results: where they are stored.
        attempt_ids: of the attempts; those without steps are left out.
        most: number of steps that are kept of each attempt, as `thinned` chooses them.
    """
    return series_in(frame_of(results.table("steps", attempts=attempt_ids)), most=most)


def series_in(rows: pd.DataFrame, *, most: int = MOST_STEPS) -> dict[str, StepSeries]:
    """Make the series of each attempt.

    A step lasts from the previous step's latest end over all ranks to its own, as `latency_s` has
    it. The first one lasts from the latest start, as does the first after a gap. Where ranks have
    different steps, as workers that don't wait for each other may, it is the longest time of a rank
    for that step.

    Args:
        rows: of `dtsweep.steps`.
        most: number of steps that are kept of each attempt, as `thinned` chooses them.
    """
    import pandas as pd

    rows = rows[rows["part"].isin(_BEFORE_THE_END)]
    rows = rows.dropna(subset=["step", "start_s", "step_s"])
    rows = rows[np.isfinite(rows["start_s"].to_numpy()) & np.isfinite(rows["step_s"].to_numpy())]
    if rows.empty:
        return {}
    codes, attempts = pd.factorize(rows["attempt_id"])
    columns = _by_step(
        np.asarray(codes, dtype=np.int64),
        rows["step"].to_numpy(np.int64),
        start=rows["start_s"].to_numpy(np.float64),
        seconds=rows["step_s"].to_numpy(np.float64),
        is_warmup=rows["warmup"].to_numpy(np.bool_, na_value=False),
    )
    begins = np.flatnonzero(np.diff(columns.attempt, prepend=-1))
    ends = [*begins[1:], len(columns.attempt)]
    return {
        str(attempts[columns.attempt[begin]]): _series(columns.part(slice(begin, end)), most=most)
        for begin, end in zip(begins, ends, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """Steps of all ranks, one element per attempt and step."""

    attempt: NDArray[np.int64]
    step: NDArray[np.int64]
    latest_start: Numbers
    latest_end: Numbers
    longest: Numbers
    ranks: NDArray[np.int64]
    is_warmup: NDArray[np.bool_]

    def part(self, place: slice) -> _Steps:
        """Steps at some places."""
        return _Steps(**{name: column[place] for name, column in vars(self).items()})


def _by_step(
    attempt: NDArray[np.int64],
    step: NDArray[np.int64],
    *,
    start: Numbers,
    seconds: Numbers,
    is_warmup: NDArray[np.bool_],
) -> _Steps:
    """Combine the ranks of each attempt and step."""
    order = np.lexsort((step, attempt))
    attempt, step, start = attempt[order], step[order], start[order]
    seconds, is_warmup = seconds[order], is_warmup[order]
    is_first = (np.diff(attempt, prepend=-1) != 0) | (np.diff(step, prepend=-1) != 0)
    first = np.flatnonzero(is_first)
    return _Steps(
        attempt=attempt[first],
        step=step[first],
        latest_start=np.maximum.reduceat(start, first),
        latest_end=np.maximum.reduceat(start + seconds, first),
        longest=np.maximum.reduceat(seconds, first),
        ranks=np.diff(first, append=len(attempt)),
        is_warmup=np.logical_or.reduceat(is_warmup, first),
    )


def _series(steps: _Steps, *, most: int) -> StepSeries:
    """Series of one attempt."""
    seconds = steps.longest
    if len(set(steps.ranks.tolist())) == 1:
        seconds = _from_end_to_end(steps)
    milliseconds = seconds * 1e3
    warmup, warmup_end = 0, None
    if steps.is_warmup.any():
        # Of workers that don't wait for each other, each has a warm-up of its own.
        warmup = int(np.flatnonzero(steps.is_warmup)[-1]) + 1
    if 0 < warmup < len(seconds):
        warmup_end = int(steps.step[warmup])
    measured = milliseconds[warmup:]
    places = thinned(milliseconds, most=most)
    return StepSeries(
        steps=tuple(steps.step[places].tolist()),
        step_ms=tuple(rounded(ms, digits=_DIGITS) for ms in milliseconds[places].tolist()),
        warmup=int((places < warmup).sum()),
        warmup_end=warmup_end,
        median_ms=rounded(float(np.median(measured)), digits=_DIGITS) if len(measured) else None,
        count=len(seconds),
    )


def _from_end_to_end(steps: _Steps) -> Numbers:
    """Times of steps of ranks that step together."""
    begin = np.concatenate([steps.latest_start[:1], steps.latest_end[:-1]])
    # The window begins at 0 on the common clock, after a pause.
    is_after_pause = np.diff(steps.latest_start >= 0, prepend=False)
    is_after_gap = np.diff(steps.step, prepend=steps.step[0] - 1) != 1
    restarts = is_after_pause | is_after_gap
    begin[restarts] = steps.latest_start[restarts]
    seconds: Numbers = steps.latest_end - begin
    return seconds


def thinned(values: Numbers, *, most: int = MOST_STEPS) -> NDArray[np.int64]:
    """Choose values that show what all would: the first, the last, and extremes in between.

    The others are divided into buckets of equal length, and the smallest and the largest value of
    each bucket are kept (min/max decimation).

    Args:
        values: finite, in their order.
        most: number to keep, at least 4.

    Returns:
        Places of the values that are kept, ascending; all if there are no more than `most`.
    """
    count = len(values)
    if count <= most:
        return np.arange(count, dtype=np.int64)
    edges = np.linspace(1, count - 1, (most - 2) // 2 + 1).astype(np.int64)
    kept = {0, count - 1}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        bucket = values[begin:end]
        kept |= {begin + int(bucket.argmin()), begin + int(bucket.argmax())}
    return np.array(sorted(kept), dtype=np.int64)
