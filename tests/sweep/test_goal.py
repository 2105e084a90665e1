"""The question of a sweep: its goal, its limits, and where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtsweep import Goal, Measure, Sweep, SweepError, workloads
from dtsweep.sweep.goal import GOALS, Question
from dtsweep.sweep.settings import of_one_launch

SWEEP = Sweep(workload=workloads.Gpt(), axes={"workers": [1, 2]})


def test_a_sweep_asks_for_the_frontier_in_three_launches_unless_it_is_said() -> None:
    assert SWEEP.question == Question(goal=None, max_launches=3)
    assert replace(SWEEP, goal="frontier").question == SWEEP.question
    assert replace(SWEEP, goal="energy").question == Question(goal=GOALS["energy"], max_launches=8)
    own = Goal(minimize="latency_s", where="workers<=2", allow=("lossy",))
    asked = replace(SWEEP, goal=own, indifference=0.1, confidence=0.9, max_launches=5)
    assert asked.question == Question(goal=own, indifference=0.1, confidence=0.9, max_launches=5)


def test_a_number_of_repeats_is_a_plain_grid() -> None:
    assert replace(SWEEP, measure=Measure(repeats=1)).question is None
    assert of_one_launch(replace(SWEEP, goal="energy", max_launches=4)).question is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"goal": "energy", "measure": Measure(repeats=3)}, r"'energy' and .* leave repeats out"),
        ({"goal": "enrgy"}, "there is no goal 'enrgy'; did you mean 'energy'?"),
        ({"goal": 3}, r"goal=3 must be Goal\(…\) or one of frontier, throughput"),
        ({"goal": Goal()}, "a goal has either maximize or minimize"),
        ({"goal": Goal(maximize="a", allow=("losy",))}, "semantics 'losy'; did you mean 'lossy'?"),
        ({"goal": Goal(maximize="a", allow="lossy")}, r"such as allow=\('lossy',\)"),
        ({"goal": Goal(maximize="a", where="a=1 or " * 300)}, "has 2,100 characters, over 2,000"),
        ({"goal": Goal(maximize="a", where="(" * 51)}, "more than 50 brackets in brackets"),
        ({"goal": Goal(maximize="a", where=8)}, "where=8 must be a text"),  # type: ignore[arg-type]
        ({"indifference": 3}, "indifference=3 must be above 0 and below 1"),
        ({"confidence": 95}, "confidence=95 must be at least 0.5 and below 1"),
        ({"max_launches": 1}, "max_launches=1 must be at least 2"),
        ({"max_launches": 10**400}, "max_launches=1000.*… must be a number of 64 bits"),
        ({"indifference": -(10**5000)}, "indifference=an integer of .* must be a number of 64"),
    ],
)
def test_a_question_that_can_not_be_meant_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        replace(SWEEP, **settings)
