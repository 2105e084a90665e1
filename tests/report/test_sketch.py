from __future__ import annotations

import functools

import pytest

from dtsweep.report.content import Content, content_of
from dtsweep.report.sketch import sketch
from tests.frames import trials
from tests.report.study import swept

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}
SLOW = {"point_id": "slow", "step_p50_s": 0.19, "samples_per_s": 20, "micro_batch": 8}


def lines(content: Content, *, width: int = 80) -> list[str]:
    recommended = [one.point for one in content.recommendations]
    return sketch(content.frontiers, recommended=recommended, width=width).splitlines()


@functools.cache
def two_points() -> Content:
    return content_of(trials(FAST, LARGE))


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_plot_fits_its_width_and_half_a_screen(width: int) -> None:
    drawn = lines(swept(), width=width)
    assert max(map(len, drawn)) <= min(width, 100)
    assert len(drawn) <= 14


@pytest.mark.slow
def test_each_semantics_has_a_marker_and_what_is_beaten_is_hollow() -> None:
    stale, local = (
        {"semantics": name, "point_id": name, "step_mean_s": 0.1} for name in ("stale", "local")
    )
    legend, *plot = lines(content_of(trials(FAST, LARGE, SLOW, FAST | stale, FAST | local)))
    assert legend == "samples/s  ● exact  ▲ stale  ■ local  ○ hollow: beaten  R recommended"
    assert sum(line.count("○") for line in plot) == 1
    assert "beaten" not in lines(two_points())[0]


def test_the_upper_row_has_the_highest_throughput_and_its_recommendation() -> None:
    _, *plot = lines(two_points())
    marked = [line for line in plot if "●" in line]
    assert [line.split("┤")[0].strip() for line in marked] == ["80", "40"]
    assert marked[0].rstrip().endswith("● R")
    assert marked[1].index("●") < marked[0].index("●")


@pytest.mark.slow
def test_the_knee_is_marked_where_there_is_one() -> None:
    knee = {"point_id": "knee", "step_p50_s": 0.11, "samples_per_s": 78, "micro_batch": 32}
    legend, *plot = lines(content_of(trials(FAST, LARGE, knee)))
    assert "k knee" in legend
    assert sum("● k" in line for line in plot) == 1
    assert "knee" not in lines(two_points())[0]


@pytest.mark.slow
def test_steps_that_span_more_than_ten_times_have_ticks_by_ratios() -> None:
    *_, ticks = lines(content_of(trials(FAST, LARGE | {"step_p50_s": 2.0})))
    assert ticks.split() == ["100", "200", "500", "1,000", "2,000", "ms/step"]
    *_, ticks = lines(two_points())
    assert ticks.split() == ["100", "120", "140", "160", "180", "200", "ms/step"]


@pytest.mark.slow
def test_less_than_two_points_are_not_drawn() -> None:
    for frame in (trials(), trials(FAST), trials({"status": "hang"})):
        assert lines(content_of(frame)) == []


@pytest.mark.slow
def test_more_frontiers_than_markers_are_counted() -> None:
    rows = [FAST | {"env_id": name} for name in "abcdefg"]
    legend = " ".join(lines(content_of(trials(*rows))))
    assert "● exact updates · ddp · env_id a" in legend
    assert "1 more frontier not drawn" in legend
