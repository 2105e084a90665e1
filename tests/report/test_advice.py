"""Sentences above the tables of a report."""

from __future__ import annotations

import pandas as pd
import pytest

from dtsweep.analysis import Study
from dtsweep.report.advice import frontier_answer
from dtsweep.sweep.goal import Question


@pytest.mark.parametrize(
    ("launches", "step"),
    [
        (2, "1 is open after 2 launches. The same command goes on"),
        (3, "1 is open after 3 launches. `--max-launches 5` goes on"),
    ],
)
def test_an_open_frontier_names_the_run_that_goes_on(launches: int, step: str) -> None:
    study = Study(pd.DataFrame(), question=Question(max_launches=3))
    points = pd.DataFrame(
        {
            "standing": ["frontier", "undecided", "dominated"],
            "on_frontier": [True, True, False],
            "is_open": [False, True, False],
            "launches": [2, launches, 1],
        }
    )
    answer = frontier_answer(study, points)
    assert answer.startswith("Frontier: 1 of 3 points is on it, each within 3 %; ")
    assert step in answer
