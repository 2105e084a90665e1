"""Plot of the step times of one trial, its warm-up marked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.results.frames import frame_of
from dtsweep.results.store import Results
from dtsweep.show.plot import Plot
from dtsweep.show.style import GREY, label, layout, title
from dtsweep.text import count_of, format_number

if TYPE_CHECKING:
    import pandas as pd


_Numbers = NDArray[np.float64]

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
    """
    rows = rows[rows["part"].isin(_BEFORE_THE_END)]
    rows = rows.dropna(subset=["step", "start_s", "step_s"])
    times = rows[["start_s", "step_s"]].to_numpy()
    rows = rows[np.isfinite(times).all(axis=1)]
    rows = rows.assign(end_s=rows["start_s"] + rows["step_s"])
    by_step = rows.groupby(["attempt_id", "step"], observed=True)
    steps = by_step.agg(
        latest_start=("start_s", "max"),
        latest_end=("end_s", "max"),
        longest=("step_s", "max"),
        ranks=("step_s", "size"),
        is_warmup=("warmup", "any"),
    )
    return {
        str(attempt): _series(of_it.droplevel("attempt_id"), most=most)
        for attempt, of_it in steps.groupby("attempt_id")
    }


def _series(steps: pd.DataFrame, *, most: int) -> StepSeries:
    """Series of one attempt."""
    seconds = steps["longest"].to_numpy(np.float64)
    if steps["ranks"].nunique() == 1:
        seconds = _from_end_to_end(steps)
    milliseconds = seconds * 1e3
    warmup, warmup_end = 0, None
    if steps["is_warmup"].any():
        # Of workers that don't wait for each other, each has a warm-up of its own.
        warmup = int(np.flatnonzero(steps["is_warmup"])[-1]) + 1
    if 0 < warmup < len(seconds):
        warmup_end = int(steps.index[warmup])
    measured = milliseconds[warmup:]
    places = thinned(milliseconds, most=most)
    return StepSeries(
        steps=tuple(steps.index[places].tolist()),
        step_ms=tuple(float(f"{ms:.{_DIGITS}g}") for ms in milliseconds[places].tolist()),
        warmup=int((places < warmup).sum()),
        warmup_end=warmup_end,
        median_ms=float(f"{np.median(measured):.{_DIGITS}g}") if len(measured) else None,
        count=len(seconds),
    )


def _from_end_to_end(steps: pd.DataFrame) -> _Numbers:
    """Times of steps of ranks that step together."""
    start = steps["latest_start"]
    begin = steps["latest_end"].shift()
    # The window begins at 0 on the common clock, after a pause.
    is_after_pause = np.diff(start >= 0, prepend=False)
    is_after_gap = np.diff(steps.index, prepend=steps.index[0] - 1) != 1
    restarts = is_after_pause | is_after_gap | begin.isna()
    seconds = steps["latest_end"] - begin.mask(restarts, start)
    return seconds.to_numpy(np.float64)


def thinned(values: _Numbers, *, most: int = MOST_STEPS) -> NDArray[np.int64]:
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


_WARMUP, _MEASURED = "#A87200", "#0072B2"
_HOVER = "step %{x}: %{y:.4g} ms<extra>%{fullData.name}</extra>"


def step_times_plot(series: StepSeries) -> Plot:
    """Plot the time of each step in ms against its number.

    The warm-up has a shaded ground and a symbol of its own; the dashed line is the median of the
    measured steps.
    """
    warmup = series.warmup
    traces = [
        _steps("warm-up", series, slice(0, warmup), colour=_WARMUP, symbol="x"),
        _steps("measured", series, slice(warmup, None), colour=_MEASURED, symbol="circle"),
    ]
    traces = [trace for trace in traces if trace["x"]]
    if series.median_ms is not None:
        traces.append(_median(series))
    thinned = ""
    if len(series.steps) < series.count:
        thinned = (
            f"{len(series.steps)} of {count_of(series.count, 'step')} are drawn, with the shortest "
            "and the longest ones"
        )
    return Plot(
        name="step_times",
        title="Step times",
        subtitle=thinned,
        description=_description(series),
        traces=traces,
        layout=layout(
            x={"title": title("step"), "zeroline": False},
            y={"title": title("step time, ms"), "rangemode": "tozero"},
            lines=len(traces),
            shapes=_shading(series),
        ),
        table=_table(series),
    )


def _steps(
    name: str, series: StepSeries, places: slice, *, colour: str, symbol: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(series.steps[places]),
        "y": list(series.step_ms[places]),
        "name": label(name),
        "line": {"color": colour, "width": 1},
        "marker": {"color": colour, "symbol": symbol, "size": 6},
        "hovertemplate": _HOVER,
    }


def _median(series: StepSeries) -> dict[str, Any]:
    """Line of the median over the measured steps."""
    measured = series.steps[series.warmup :]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [measured[0], measured[-1]],
        "y": [series.median_ms, series.median_ms],
        "name": "median",
        "line": {"color": GREY, "dash": "dash"},
        "hovertemplate": "median %{y:.4g} ms<extra></extra>",
    }


def _shading(series: StepSeries) -> list[dict[str, Any]]:
    """Ground of the warm-up, until the middle between it and the first measured step."""
    if not series.warmup:
        return []
    end = series.steps[series.warmup - 1] + 0.5
    if series.warmup_end is not None:
        end = series.warmup_end - 0.5
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": series.steps[0] - 0.5,
            "x1": end,
            "y0": 0,
            "y1": 1,
            "fillcolor": _WARMUP,
            "opacity": 0.15,
            "line": {"width": 0},
            "layer": "below",
        }
    ]


def _description(series: StepSeries) -> str:
    sentences = [f"Times of {count_of(series.count, 'step')}."]
    if series.warmup_end is not None:
        sentences.append(f"Steps before number {series.warmup_end} are warm-up.")
    measured = series.step_ms[series.warmup :]
    if series.median_ms is not None and measured:
        sentences.append(
            f"Median of the measured ones: {format_number(series.median_ms)} ms, shortest "
            f"{format_number(min(measured))} ms, longest {format_number(max(measured))} ms."
        )
    return " ".join(sentences)


def _table(series: StepSeries) -> dict[str, list[str]]:
    parts = ["warm-up"] * series.warmup + ["measured"] * (len(series.steps) - series.warmup)
    return {
        "step": [f"{step:,}" for step in series.steps],
        "step time, ms": [format_number(value) for value in series.step_ms],
        "part": parts,
    }
