from __future__ import annotations

import sys

import pytest

from dtsweep import SweepError, plots
from tests.frames import trials

FAST = {"point_id": "fast", "step_p50_s": 0.1, "samples_per_s": 40}
LARGE = {"point_id": "large", "step_p50_s": 0.2, "samples_per_s": 80, "micro_batch": 16}
SLOW = {"point_id": "slow", "step_p50_s": 0.3, "samples_per_s": 20, "micro_batch": 8}
KNEE = {"point_id": "knee", "step_p50_s": 0.11, "samples_per_s": 78, "micro_batch": 32}
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


@pytest.mark.slow
def test_a_figure_says_that_bars_of_one_launch_are_within_it() -> None:
    figure = plots.frontier(trials(FAST | KNOWN, LARGE)).to_dict()
    words = "bars of 1 point are within one launch: another may lie outside"
    assert figure["layout"]["title"]["subtitle"]["text"] == words
    line, *_ = figure["data"]
    assert list(line["customdata"]) == [
        "decided, 1 launch, interval within this launch",
        "decided, 1 launch, no interval",
    ]
    again = [FAST | KNOWN | {"step_p50_s": 0.1 + n / 1000} for n in range(3)]
    assert plots.frontier(trials(*again)).to_dict()["layout"]["title"]["subtitle"]["text"] == ""


@pytest.mark.slow
def test_a_knee_has_a_ring_and_axes_their_units() -> None:
    figure = plots.frontier(trials(FAST, LARGE, KNEE)).to_dict()
    (knee,) = (trace for trace in figure["data"] if trace["name"] == "knee")
    assert list(knee["y"]) == [78]
    assert figure["layout"]["xaxis"]["title"]["text"] == "step time, ms"
    assert figure["layout"]["yaxis"]["title"]["text"] == "samples/s"


@pytest.mark.slow
def test_of_many_groups_the_fastest_are_shown_and_the_others_counted() -> None:
    ladders = [
        {"workers": workers, "micro_batch": micro, "samples_per_s": 10.0 * micro * workers}
        for micro in range(1, 11)
        for workers in (1, 2)
    ]
    figure = plots.scaling(trials(*ladders)).to_dict()
    *lines, ideal = figure["data"]
    names = [f"weak · ddp · {micro} × 1" for micro in range(10, 2, -1)]
    assert [trace["name"] for trace in lines] == names
    subtitle = figure["layout"]["title"]["subtitle"]["text"]
    assert subtitle.endswith("; 2 slower groups in the table alone")
    assert list(figure["layout"]["xaxis"]["tickvals"]) == list(ideal["x"]) == [1, 2]


def test_a_bar_that_reaches_far_beyond_all_points_does_not_flatten_them() -> None:
    wide: dict[str, float] = {"samples_per_s_low": 10, "samples_per_s_high": 900}
    wide |= {"step_p50_s_low": 0.001, "step_p50_s_high": 90}
    layout = plots.frontier(trials(FAST | wide, LARGE)).to_dict()["layout"]
    assert layout["title"]["subtitle"]["text"].startswith("longer error bars are cut")
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
    assert "undecided" in [trace["name"] for trace in others]


@pytest.mark.slow
def test_a_name_in_the_legend_begins_with_the_semantics_and_has_no_settings() -> None:
    stale = {"sync": "parameter_server", "semantics": "stale", "shards": 2, "workers": 2}
    data = plots.frontier(trials(FAST | stale, LARGE)).to_dict()["data"]
    names = [trace["name"] for trace in data if trace.get("legendgroup")]
    assert sorted(names) == ["exact · ddp", "stale · parameter_server"]


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
