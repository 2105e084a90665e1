"""Plot of the step times of one trial, its warm-up marked."""

from __future__ import annotations

from typing import Any

from dtsweep.plots.plot import Plot
from dtsweep.plots.step_series import StepSeries
from dtsweep.plots.style import GREY, label, layout, title
from dtsweep.text import count_of, format_number

_WARMUP, _MEASURED = "#A87200", "#0072B2"
_HOVER = "step %{x}: %{y:.4g} ms<extra>%{fullData.name}</extra>"


def step_times_plot(series: StepSeries, *, name: str = "") -> Plot:
    """Plot the time of each step in ms against its number.

    The warm-up has a shaded ground and a symbol of its own; the dashed line is the median of the
    measured steps.

    Args:
        series: of one attempt.
        name: of the trial, in plain text.
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
        title=f"Step times: {name}" if name else "Step times",
        subtitle=thinned,
        description=_description(series, name=name),
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


def _description(series: StepSeries, *, name: str) -> str:
    of_it = f" of {name}" if name else ""
    sentences = [f"Times of {count_of(series.count, 'step')}{of_it}."]
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
