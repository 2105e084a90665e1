from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import usl, worthwhile
from dtsweep.report.scaling_words import scaling_remarks
from tests.analysis.ladders import ladder, published, universal
from tests.report.study import swept

SIZES = (1, 2, 4, 8, 16, 32)


def sentences(frame: pd.DataFrame) -> list[str]:
    return [one.text for one in scaling_remarks(worthwhile(frame), usl(frame))]


def test_a_ladder_is_said_in_a_line_for_the_measured_and_one_for_the_law() -> None:
    made = universal(SIZES, contention=0.03, coherency=0.002)
    lines = sentences(ladder(made, launches=3, error=0.002, rng=np.random.default_rng(0)))
    assert (
        lines[0]
        == "ddp, weak scaling, 4 × 1 per worker: the step from 8 workers to 16 doesn't pay."
    )
    assert lines[1].startswith("Universal Scalability Law: contention 0.03")
    assert "highest at 22 (22 to 22); beyond 8 (8 to 8) one more worker doesn't pay" in lines[1]
    assert len(lines) == 2


STEEP = {1: 100.0, 2: 190.0, 4: 290.0, 8: 310.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "error", "words"),
    [
        (STEEP, 0.02, "the step from 4 workers to 8 doesn't pay (95 %: from 2 to 4)"),
        ({1: 100.0, 2: 120.0, 4: 130.0}, 0.005, "the step from 1 worker to 2 doesn't pay"),
        ({1: 100.0, 2: 190.0}, 0.005, "each step pays, up to the largest size measured (2)"),
        (
            {1: 100.0, 2: 150.0, 4: 250.0},
            0.3,
            "undecided: launches don't show whether a step beyond 1 worker pays",
        ),
    ],
)
def test_a_knee_is_said_with_its_numbers(rates: dict[int, float], error: float, words: str) -> None:
    frame = ladder(rates, launches=3, error=error, rng=np.random.default_rng(8))
    assert sentences(frame)[0] == f"ddp, weak scaling, 4 × 1 per worker: {words}."


def test_groups_of_which_nothing_is_known_are_counted_and_what_is_extrapolated_is_named() -> None:
    assert [one.text for one in swept().worth.remarks] == [
        "33 groups of several sizes: unknown: too few launches.",
        "The Universal Scalability Law is fitted to four sizes or more.",
    ]
    weak, law, *_ = sentences(ladder(published()))
    assert weak == "ddp, weak scaling, 4 × 1 per worker: unknown: too few launches."
    assert "beyond 240 (54 to 1,285, extrapolated, untested) one more worker doesn't pay" in law
    assert "highest" not in law
    strong, *_ = sentences(ladder(universal(SIZES, contention=0.1), strong=True))
    assert strong == "ddp, strong scaling, 64 per step: unknown: too few launches."
    assert sentences(ladder({1: 10.0})) == []
