"""Statistical efficiency next to points that are not exact: one text for all outputs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dtsweep.analysis.statistical_efficiency import efficiency_of
from dtsweep.notebook import frontier_html
from dtsweep.page.view import _frontiers
from dtsweep.report.as_json import report_json
from dtsweep.report.content import Content, content_of
from dtsweep.report.efficiency_words import efficiency_json, efficiency_words, times_the_samples
from dtsweep.report.terminal import print_report
from tests.frames import trials
from tests.report.study import measured

LOCAL = {"sync": "local_sgd", "semantics": "local"}


@pytest.fixture(scope="module")
def content() -> Content:
    """One exact point, one whose settings have a row, and one without, which is slower."""
    modes = {16: LOCAL | {"sync_period": 8}, 8: LOCAL | {"sync_period": 77}, 4: {"sync": "ddp"}}
    rows = [
        measured(mode, workers=2, micro_batch=micro_batch, accumulation=1)
        for micro_batch, mode in modes.items()
    ]
    return content_of(trials(*rows))


def printed(content: Content, *, width: int, show_all: bool) -> str:
    out = io.StringIO()
    print_report(content, console=Console(file=out, width=width), show_all=show_all)
    return " ".join(out.getvalue().split())


def test_points_that_are_not_exact_have_the_ratio_of_their_settings(content: Content) -> None:
    exact, local = content.frontiers
    row = efficiency_of(LOCAL | {"sync_period": 8})
    assert row is not None
    assert exact.efficiency == []
    words = f"on a small model: {times_the_samples(row.ratio)}; not transferable"
    points = {point["sync_period"]: point for _, point in local.points.iterrows()}
    assert efficiency_words(points[8]) == words
    assert efficiency_words(points[77]) == "statistical efficiency not measured for these settings"
    alone = points[8].copy()
    alone["workers"] = 1
    assert efficiency_words(alone) == ""
    # One worker's momentum is reset, too.
    alone["local_momentum"] = "reset"
    assert efficiency_words(alone)


@pytest.mark.parametrize("width", [80, 140])
def test_all_outputs_say_it(content: Content, width: int) -> None:
    local = content.frontiers[1]
    assert local.efficiency
    in_terminal = printed(content, width=width, show_all=True)
    for line in local.efficiency:
        assert line in in_terminal
        assert line in frontier_html(local)
        assert line in _frontiers(content)[1]["sentences"]
        assert line in report_json(content)["frontiers"][1]["efficiency"]
    assert "small model" in printed(content, width=width, show_all=False)


def test_json_has_the_ratio_with_its_interval(content: Content) -> None:
    exact, local = content.frontiers
    points = {point["sync_period"]: point for _, point in local.points.iterrows()}
    values = efficiency_json(points[8])
    row = efficiency_of(LOCAL | {"sync_period": 8})
    assert values is not None
    assert row is not None
    ends = [values[f"samples_ratio{end}"] for end in ("", "_low", "_high")]
    assert ends == [row.ratio.mean, row.ratio.low, row.ratio.high]
    assert efficiency_json(points[77]) is efficiency_json(exact.points.iloc[0]) is None
