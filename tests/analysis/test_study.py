"""Tables that questions share are prepared once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from dtsweep import load
from dtsweep.analysis import (
    Study,
    canaries,
    difference,
    frontier,
    launch_sigma,
    over_launches,
    recommend,
    scaling,
)
from dtsweep.analysis import study as studies
from dtsweep.cli.decide import print_results
from dtsweep.report.content import content_of
from tests.pages import ROOT

RESULTS = ROOT / "tests" / "data" / "three_modes"
FRAME = load(RESULTS, canaries=True)
PREPARED = ("measured", "points_of", "canaries_of", "parse_condition")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts = Counter[str]()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    for name in (*PREPARED, "ladders_of"):
        monkeypatch.setattr(studies, name, counted(name, getattr(studies, name)))
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(("where", "tables"), [("", 1), ("micro_batch = 4", 2)])
def test_a_report_prepares_each_table_once(calls: Counter[str], where: str, tables: int) -> None:
    """Under a condition, those of the points that meet it, next to those of all."""
    print_results(str(RESULTS), as_json=True, where=where)
    assert calls["parse_condition"] == calls["canaries_of"] == 1
    assert calls["measured"] == calls["points_of"] == tables
    # By workers and by nodes.
    assert calls["ladders_of"] == 2


def test_questions_to_a_study_and_to_its_frame_have_one_answer_and_change_no_table() -> None:
    study = Study(FRAME)
    tables = (study.frame, study.trials, study.points, study.canaries)
    before = [table.copy(deep=True) for table in tables]
    a, b = study.points["point_id"][:2]
    for question in (over_launches, canaries, launch_sigma, frontier, scaling):
        pd.testing.assert_frame_equal(question(FRAME), question(study))
    pd.testing.assert_frame_equal(difference(FRAME, a, b), difference(study, a, b))
    one, other = ([each.point["point_id"] for each in recommend(of)] for of in (FRAME, study))
    assert one == other
    content_of(study)
    for then, now in zip(before, tables, strict=True):
        pd.testing.assert_frame_equal(then, now)
