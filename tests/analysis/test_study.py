"""Tables that questions share are prepared once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

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
from dtsweep.sweep.goal import GOALS, Question
from tests.pages import ROOT

RESULTS = ROOT / "tests" / "data" / "three_modes"
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


def test_a_report_prepares_each_table_once(calls: Counter[str]) -> None:
    print_results(str(RESULTS), as_json=True, samples=1000)
    assert calls == dict.fromkeys(PREPARED, 1) | {"ladders_of": 2}, (
        "ladders by workers and by nodes"
    )


def test_a_report_answers_the_question_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    question = Question(goal=GOALS["fast-validation"])
    for where in ("", "micro_batch = 4"):
        print_results(str(RESULTS), as_json=False, where=where, question=question)
        assert "for the lowest latency_s" in " ".join(capsys.readouterr().out.split())


def test_a_report_where_reads_the_condition_once_and_prepares_the_points_that_meet_it_beside_all(
    calls: Counter[str],
) -> None:
    print_results(str(RESULTS), as_json=True, samples=1000, where="micro_batch = 4")
    assert calls["parse_condition"] == 1
    assert calls["measured"] == calls["points_of"] == 2
    assert calls["canaries_of"] == 1


def test_questions_to_a_study_and_to_its_frame_have_one_answer() -> None:
    from dtsweep import load

    frame = load(RESULTS, canaries=True)
    study = Study(frame)
    a, b = over_launches(study)["point_id"][:2]
    for question in (over_launches, canaries, launch_sigma, frontier, scaling):
        pd.testing.assert_frame_equal(question(frame), question(study))
    pd.testing.assert_frame_equal(difference(frame, a, b), difference(study, a, b))
    assert [each.point["point_id"] for each in recommend(frame)] == [
        each.point["point_id"] for each in recommend(study)
    ]


def test_no_question_changes_a_table_of_the_study() -> None:
    from dtsweep import load
    from dtsweep.report.content import content_of

    study = Study(load(RESULTS, canaries=True))
    before = [
        table.copy(deep=True) for table in (study.frame, study.trials, study.points, study.canaries)
    ]
    content_of(study)
    for then, now in zip(
        before, (study.frame, study.trials, study.points, study.canaries), strict=True
    ):
        pd.testing.assert_frame_equal(then, now)
