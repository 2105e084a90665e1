"""Sentences above the tables of a report."""

from __future__ import annotations

import pandas as pd
import pytest

from dtsweep.analysis import Study
from dtsweep.report.advice import frontier_answer
from dtsweep.sweep.goal import Question


@pytest.mark.parametrize(("launches", "code"), [(2, "frontier_again"), (3, "frontier_goes_on")])
def test_an_open_frontier_names_the_run_that_goes_on(launches: int, code: str) -> None:
    study = Study(pd.DataFrame(), question=Question(max_launches=3))
    points = pd.DataFrame(
        {
            "standing": ["frontier", "undecided", "dominated"],
            "on_frontier": [True, True, False],
            "is_open": [False, True, False],
            "launches": [2, launches, 1],
        }
    )
    first, step = frontier_answer(study, points)
    counted = {name: first.numbers[name] for name in ("settled", "open", "points", "launches")}
    assert counted == {"settled": 1, "open": 1, "points": 3, "launches": launches}
    assert step.code == code
