"""The numbers of plots are those of the frame; hard inputs make JSON and valid figures."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep import SweepError, plots
from dtsweep.analysis import scaling
from dtsweep.report.content import Content, content_of
from dtsweep.report.labels import point_key
from dtsweep.show.figures import figure_of, plots_of
from dtsweep.show.frontier_plot import frontier_plot
from dtsweep.show.plot import Plot
from dtsweep.show.scaling_plot import scaling_plot
from dtsweep.show.shares_plot import shares_plot
from dtsweep.show.style import (
    COLOURS,
    DARK,
    FORMS,
    GREY,
    LABEL,
    MOST_BARS,
    MOST_LINES,
    SERIES,
    cut,
    label,
)
from tests.frames import trials
from tests.report.study import sweep, swept

MAKERS = (frontier_plot, scaling_plot, shares_plot)

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
    # The table of points has the numbers of the frontier.
    assert bool(plot.table) == (not plot.is_empty and plot.name != "frontier")
    assert not any("\n" in header for header in plot.table)
    for axis in ("xaxis", "yaxis"):
        if axis in plot.layout:
            assert plot.layout[axis]["title"]["text"]
        for text in plot.layout.get(axis, {}).get("ticktext", ()):
            assert len(text) <= LABEL
    shown = [trace for trace in plot.traces if "visible" not in trace]
    assert bool(plot.more) == (len(shown) < len(plot.traces))
    names = {trace.get("legendgroup", trace.get("name")) for trace in shown}
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


def test_a_part_below_zero_is_drawn_as_zero_and_named_as_noise() -> None:
    noisy = ALL_KNOWN | {"exchange_share": -0.03, "exchange_share_low": -0.1}
    plot = shares_plot(content_of(trials(noisy)))
    exchange = plot.traces[1]
    assert exchange["x"] == [0.0]
    assert exchange["customdata"][0][0] == "-3.0 % (noise)"
    assert plot.subtitle.startswith("noise: a part of 1 point was measured below 0")
    patterns = [trace["marker"].get("pattern", {}).get("shape") for trace in plot.traces]
    assert len(set(patterns)) == len(patterns) == 4


@pytest.mark.slow
def test_of_many_points_few_have_a_bar_the_recommended_first_and_all_stand_in_the_table() -> None:
    content = many_points()
    (best,) = content.recommendations
    assert shares_plot(content).traces[0]["ids"][0] == point_key(best.point)
    plot = shares_plot(content)
    assert len(plot.traces[0]["x"]) == MOST_BARS
    assert len(plot.table["point"]) == 160
    assert plot.subtitle.endswith(f"{160 - MOST_BARS} more points in the table alone")
    scaled = scaling_plot(content)
    assert len(scaled.table["speed-up"]) > len(scaled.traces)
    assert scaled.more == "Show all 40 groups"


# Figures

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}
SLOW = {"point_id": "slow", "step_p50_s": 0.3, "samples_per_s": 20, "micro_batch": 8}
KNOWN = {"step_p50_s_low": 0.09, "step_p50_s_high": 0.13, "samples_per_s_low": 38} | {
    "samples_per_s_high": 41
}


def test_a_frontier_has_its_line_its_bars_and_beaten_points_that_are_faint() -> None:
    beaten, line, ring, key = plots.frontier(trials(FAST | KNOWN, LARGE, SLOW)).to_dict()["data"]
    assert list(line["x"]) == [100.0, 200.0]
    assert line["error_x"]["array"][0] == pytest.approx(30)
    assert line["error_y"]["arrayminus"][0] == pytest.approx(2)
    assert line["mode"] == "lines+markers"
    assert (beaten["mode"], list(beaten["y"])) == ("markers", [20])
    assert beaten["opacity"] < 1
    assert "opacity" not in line
    assert (ring["name"], key["name"]) == ("recommended", "beaten")
    assert list(ring["y"]) == [80]


def test_a_bar_that_reaches_far_beyond_all_points_does_not_flatten_them() -> None:
    wide: dict[str, float] = {"samples_per_s_low": 10, "samples_per_s_high": 900}
    wide |= {"step_p50_s_low": 0.001, "step_p50_s_high": 90}
    layout = plots.frontier(trials(FAST | wide, LARGE)).to_dict()["layout"]
    assert layout["yaxis"]["range"] == [0, pytest.approx(80, rel=0.1)]
    assert layout["xaxis"]["range"] == [pytest.approx(100, rel=0.1), pytest.approx(200, rel=0.1)]


@pytest.mark.slow
def test_an_undecided_point_is_hollow_and_the_line_that_leaves_it_out_rises() -> None:
    launches = [
        point | {"step_p50_s": point["step_p50_s"] * factor, "samples_per_s": rate / factor}
        for point, rate in ((FAST, 40), (LARGE, 80), (SLOW, 79))
        for factor in (0.8, 1.0, 1.2)
    ]
    undecided, line, *others = plots.frontier(trials(*launches)).to_dict()["data"]
    assert (undecided["mode"], undecided["marker"]["symbol"]) == ("markers", "circle-open")
    assert (line["mode"], line["marker"]["symbol"]) == ("lines+markers", "circle")
    assert list(line["y"]) == sorted(line["y"])
    assert len(undecided["x"]) == 1
    assert undecided["error_y"]["thickness"] < line["error_y"]["thickness"]
    assert "may be beaten" in [trace["name"] for trace in others]


def test_symbols_tell_models_apart_and_dashes_and_colours_kinds_of_updates() -> None:
    small = FAST | {"model_digest": "s", "flops_per_sample": 1e6}
    big = FAST | {"model_digest": "b", "flops_per_sample": 2e6, "point_id": "big"}
    local = {"semantics": "local", "sync": "local_sgd", "step_mean_s": 0.1, "point_id": "local"}
    figure = plots.frontier(trials(small, big, small | local | {"workers": 2}))
    lines = [trace for trace in figure.to_dict()["data"] if trace.get("showlegend")]
    one, other, apart = lines
    assert [line["marker"]["symbol"] for line in lines] == ["circle", "circle-dot", "diamond"]
    for name in ("dash", "color"):
        assert one["line"][name] == other["line"][name] != apart["line"][name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spread", "words"), [(0.001, "is the fastest"), (0.2, "leads so far"), (None, "leads so far")]
)
def test_the_title_says_which_point_is_the_fastest(spread: float | None, words: str) -> None:
    factors = [1 + step * (spread or 0.0) for step in range(3 if spread else 1)]
    rows = [
        point | {"step_p50_s": point["step_p50_s"] * factor, "samples_per_s": rate / factor}
        for point, rate in ((FAST, 76), (LARGE, 80))
        for factor in factors
    ]
    title = frontier_plot(content_of(trials(*rows))).title
    assert title == f"Step time against throughput: ddp micro_batch=16 {words}"


def test_two_sizes_are_a_table_and_three_a_plot() -> None:
    rows = [{"workers": size, "samples_per_s": 10.0 * size} for size in (1, 2, 4)]
    assert scaling_plot(content_of(trials(*rows[:2]))).is_table
    assert not scaling_plot(content_of(trials(*rows))).is_table


def test_the_interval_of_a_decided_point_has_room_up_to_three_times_the_largest_mean() -> None:
    wide = {"samples_per_s_low": 30, "samples_per_s_high": 200}
    layout = plots.frontier(trials(FAST, LARGE | wide)).to_dict()["layout"]
    assert layout["yaxis"]["range"][1] > 200


def test_the_parts_of_a_step_add_up_to_it_and_unknown_ones_are_missing() -> None:
    known = {"workers": 2, "data_share": 0.1, "exchange_share": 0.3, "wait_share": 0.05}
    known |= {"comm_share": 0.35}
    parts = plots.shares(trials(FAST | known)).to_dict()["data"]
    assert sum(part["x"][0] for part in parts) == pytest.approx(100)
    unknown = plots.shares(trials(FAST | known | {"exchange_share": None})).to_dict()["data"]
    assert [part["x"][0] for part in unknown] == [pytest.approx(10), None, pytest.approx(5), None]
    assert not plots.shares(trials(FAST | {"workers": 2})).data


def test_without_plotly_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(SweepError, match=r"pip install 'dtsweep\[plots\]'"):
        plots.frontier(trials(FAST))


# Colours can be seen, and text of others is text

WHITE, DARK_PAGE = "#ffffff", "#15181d"


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_each_colour_is_seen_on_a_light_and_on_a_dark_page() -> None:
    for colour in {*COLOURS.values(), GREY, *(line.colour for line in SERIES)}:
        assert contrast(colour, WHITE) >= 3, colour
        assert contrast(DARK.get(colour, colour), DARK_PAGE) >= 3, colour


def test_semantics_and_lines_are_told_apart_without_colour() -> None:
    assert FORMS.keys() == COLOURS.keys()
    symbols, dashes = zip(*FORMS.values(), strict=True)
    assert len({*symbols}) == len({*dashes}) == len(FORMS)
    assert len({(line.symbol, line.dash) for line in SERIES}) == len(SERIES)


def test_a_label_has_no_tag_no_formula_and_no_control_character_and_keeps_both_ends() -> None:
    assert not set("<>$\x1b") & set(label("<b>$x$</b>\x1b"))
    assert cut("ddp micro_batch=16", 9) == "ddp …h=16"
    assert cut("ddp", 9) == "ddp"
