"""The numbers of plots are those of the frame; hard inputs make JSON and valid figures."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep import plots
from dtsweep.analysis import scaling
from dtsweep.plots import plots_of
from dtsweep.plots.figures import figure_of
from dtsweep.plots.frontier_plot import frontier_plot
from dtsweep.plots.memory_plot import memory_plot
from dtsweep.plots.plot import Plot
from dtsweep.plots.scaling_plot import scaling_plot
from dtsweep.plots.shares_plot import shares_plot
from dtsweep.plots.style import LABEL, MOST_BARS, MOST_LINES
from dtsweep.report.content import Content, content_of
from dtsweep.report.labels import point_key
from tests.frames import trials
from tests.report.study import sweep, swept

MAKERS = (frontier_plot, scaling_plot, shares_plot, memory_plot)

ALL_KNOWN: dict[str, Any] = {
    **{"data_share": 0.1, "wait_share": 0.05, "comm_share": 0.35, "exchange_share": 0.3},
    **{"exchange_share_low": 0.2, "exchange_share_high": 0.45},
    **{"step_mean_s": 0.1, "step_p50_s": 0.1, "samples_per_s": 40.0},
    **{"memory_peak_bytes": 3 * 2**30, "workers": 2},
}


def check(plot: Plot) -> None:
    """Check what all plots promise."""
    json.dumps([list(plot.traces), plot.layout, plot.table], allow_nan=False)
    figure_of(plot)
    assert plot.description
    assert len({len(cells) for cells in plot.table.values()}) <= 1
    assert bool(plot.table) == (not plot.is_empty)
    assert not any("\n" in header for header in plot.table)
    for axis in ("xaxis", "yaxis"):
        if axis in plot.layout:
            assert plot.layout[axis]["title"]["text"]
        for text in plot.layout.get(axis, {}).get("ticktext", ()):
            assert len(text) <= LABEL
    names = {trace.get("legendgroup", trace.get("name")) for trace in plot.traces}
    # Rings of knees and of recommended points, and the ideal.
    assert len(names - {"knee", "recommended", "ideal"}) <= MOST_LINES
    for trace in plot.traces:
        if "ids" in trace:
            assert len(trace["ids"]) == len(trace["x"]) == len(trace["y"])


def odd_numbers() -> pd.DataFrame:
    infinite = float("inf")
    return trials(
        ALL_KNOWN | {"step_mean_s": infinite, "exchange_share": -infinite},
        ALL_KNOWN | {"micro_batch": 8, "data_share": infinite},
        ALL_KNOWN | {"micro_batch": 16, "samples_per_s": 0.0, "memory_peak_bytes": None},
    )


HARD: Mapping[str, Callable[[], pd.DataFrame]] = {
    "nothing": trials,
    "nothing ok": lambda: trials({"status": "hang"}, {"status": "oom_device"}),
    "one trial": lambda: trials(ALL_KNOWN),
    "one trial of unknown numbers": lambda: trials({}),
    "infinite numbers and zeros": odd_numbers,
}


@functools.cache
def many_points() -> Content:
    """A report of 160 points in 40 ladders, computed once."""
    points = [
        {"workers": workers, "micro_batch": micro_batch, "step_p50_s": 0.01 * micro_batch}
        | {"samples_per_s": 10.0 * workers + micro_batch}
        for workers in (1, 2, 4, 8)
        for micro_batch in range(1, 41)
    ]
    return content_of(trials(*(ALL_KNOWN | point for point in points)))


@pytest.mark.parametrize("name", [*HARD, "many points", "all semantics"])
def test_plots_of_hard_inputs_are_json_and_valid_figures(name: str) -> None:
    # The analysis subtracts infinite numbers from each other, and squares them.
    with np.errstate(all="ignore"):
        if name in HARD:
            content = content_of(HARD[name]())
        else:
            content = many_points() if name == "many points" else swept()
    for make in MAKERS:
        check(make(content))
    assert not any(plot.is_empty for plot in plots_of(content))


def test_each_drawn_point_stands_once_with_the_numbers_of_its_row() -> None:
    plot = frontier_plot(swept())
    points = [
        (trace, place)
        for trace in plot.traces
        if "legendgroup" in trace
        for place in range(len(trace["ids"]))
    ]
    assert len({trace["ids"][place] for trace, place in points}) == len(points) > 20
    rows = {point_key(row): row for row in sweep().to_dict("records") if row["status"] == "ok"}
    for trace, place in points:
        row = rows[trace["ids"][place]]
        assert trace["x"][place] == pytest.approx(row["latency_s"] * 1e3)
        assert trace["y"][place] == pytest.approx(row["samples_per_s"])
        if "error_y" in trace:
            up, down = trace["error_y"]["array"][place], trace["error_y"]["arrayminus"][place]
            assert row["samples_per_s"] + up == pytest.approx(row["samples_per_s_high"])
            assert row["samples_per_s"] - down == pytest.approx(row["samples_per_s_low"])
    lines = [trace for trace in plot.traces if trace.get("mode") != "markers"]
    assert len({line["line"]["dash"] for line in lines}) == len(lines) == 3
    assert len({line["marker"]["symbol"] for line in lines}) == len(lines)


def test_speed_ups_and_both_ends_of_their_intervals_are_those_of_the_analysis() -> None:
    rows = [
        {"point_id": str(size), "workers": size, "hosts": size, "session": f"{size} {launch}"}
        | {"step_p50_s": 0.1, "samples_per_s": 100 * size**0.9 * (1 + launch / 100)}
        for size in (1, 2, 4)
        for launch in range(3)
    ]
    frame = trials(*rows)
    line, ideal = scaling_plot(content_of(frame), per="node").traces
    known = {point_key(row): row for row in scaling(frame, per="node").to_dict("records")}
    assert line["x"] == [1.0, 2.0, 4.0]
    assert list(ideal["y"]) == [1, 4.0]
    assert len(line["ids"]) == len(known) == 3
    for place, key in enumerate(line["ids"]):
        value, bars = line["y"][place], line["error_y"]
        assert value == known[key]["speed_up"]
        if value > 1:
            assert value + bars["array"][place] == pytest.approx(known[key]["speed_up_high"])
            assert value - bars["arrayminus"][place] == pytest.approx(known[key]["speed_up_low"])


@pytest.mark.slow
def test_marks_of_a_size_are_close_to_it_and_no_two_groups_look_alike() -> None:
    traces = scaling_plot(many_points()).traces[:-1]
    looks = {(t["marker"]["color"], t["marker"]["symbol"], t["line"]["dash"]) for t in traces}
    assert len(looks) == len(traces) == MOST_LINES
    for trace in traces:
        assert trace["x"][0] == pytest.approx(1, abs=0.021 * 7)
        assert trace["x"][-1] == pytest.approx(8, abs=0.021 * 7)


def test_a_part_below_zero_is_drawn_as_zero_and_named_as_noise() -> None:
    noisy = ALL_KNOWN | {"exchange_share": -0.03, "exchange_share_low": -0.1}
    plot = shares_plot(content_of(trials(noisy)))
    exchange = plot.traces[1]
    assert exchange["x"] == [0.0]
    assert exchange["customdata"][0][0] == "-3.0 % (noise)"
    assert plot.subtitle.startswith("noise: a part of 1 point was measured below 0")
    patterns = [trace["marker"].get("pattern", {}).get("shape") for trace in plot.traces]
    assert len(set(patterns)) == len(patterns) == 4


def test_memory_is_sorted_and_has_the_memory_that_was_free() -> None:
    frame = trials(
        ALL_KNOWN | {"attempt_id": "small", "memory_peak_bytes": 2**30},
        ALL_KNOWN | {"attempt_id": "large", "micro_batch": 8},
    )
    ranks = pd.DataFrame(
        {"attempt_id": ["small", "large", "large"], "device_free_bytes": [2**33, 2**33, 2**32]}
    )
    plot = memory_plot(content_of(frame), ranks=ranks)
    peaks, free = plot.traces
    assert peaks["x"] == [3.0, 1.0]
    assert free["x"] == [4.0, 8.0]
    assert free["ids"] == peaks["ids"]
    assert plot.layout["xaxis"]["title"]["text"] == "memory, GiB"
    assert list(plot.table)[-2:] == ["memory GiB", "free before GiB"]


@pytest.mark.slow
def test_memory_of_devices_that_say_nothing_of_it_has_no_mark() -> None:
    ranks = pd.DataFrame({"attempt_id": ["a"], "device_free_bytes": [None]})
    more = {"micro_batch": 8, "memory_peak_bytes": 3 * 2**30 + 2**26}
    frame = trials(ALL_KNOWN | {"attempt_id": "a"}, ALL_KNOWN | more)
    plot = memory_plot(content_of(frame), ranks=ranks)
    (peaks,) = plot.traces
    assert sorted(peaks["x"]) == [3.0, 3.0625]
    assert plot.subtitle == "all points are within 5 % of each other"


@pytest.mark.slow
def test_of_many_points_few_have_a_bar_the_recommended_first_and_all_stand_in_the_table() -> None:
    content = many_points()
    (best,) = content.recommendations
    assert shares_plot(content).traces[0]["ids"][0] == point_key(best.point)
    for make in (shares_plot, memory_plot):
        plot = make(content)
        assert len(plot.traces[0]["x"]) == MOST_BARS
        assert len(plot.table["point"]) == 160
        assert plot.subtitle.endswith(f"{160 - MOST_BARS} more points in the table alone")
    scaled = scaling_plot(content)
    assert len(scaled.table["speed-up"]) > len(scaled.traces)
    assert scaled.subtitle.endswith("in the table alone")


def test_completion_offers_the_figures_which_take_a_frame_and_a_report() -> None:
    assert dir(plots) == ["frontier", "memory", "scaling", "shares", "step_times"]
    frame = trials(ALL_KNOWN, ALL_KNOWN | {"micro_batch": 8, "workers": 4})
    content = content_of(frame)
    for name in ("frontier", "memory", "scaling", "shares"):
        draw = getattr(plots, name)
        of_frame, of_content = draw(frame).to_dict(), draw(content).to_dict()
        assert json.dumps(of_frame, default=str) == json.dumps(of_content, default=str)
        assert of_frame["layout"]["title"]["text"]
