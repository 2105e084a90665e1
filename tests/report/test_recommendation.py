"""A recommendation in words: what, how sure, what it gives up."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dtsweep.analysis import GOALS, Goal, Study, recommend
from dtsweep.report.recommendation import print_all
from tests.analysis.test_recommend import launches, watched
from tests.frames import trials


def said(*points: list[dict[str, Any]], goal: Goal = GOALS["throughput"], width: int = 400) -> str:
    out = StringIO()
    study = Study(trials(*(row for point in points for row in point)))
    found = recommend(study, goal)
    print_all(found, points=study.points, console=Console(file=out, width=width))
    return out.getvalue()


def test_the_first_line_says_what_for_and_which() -> None:
    text = said(launches("a", 100, workers=1), launches("b", 140, workers=2))
    assert text.splitlines()[0] == "Recommended for the highest samples_per_s: ddp workers=2"
    assert "Sure: significantly better than the other candidate. Runner-up: ddp workers=1" in text


def test_the_headline_names_what_varies_among_all_points_not_among_candidates_alone() -> None:
    points = [
        launches("a", 40, workers=1, micro_batch=16, step_p50_s=0.1),
        launches("b", 45, workers=2, micro_batch=16, step_p50_s=0.2),
        launches("c", 5, workers=1, micro_batch=4, step_p50_s=0.01),
    ]
    text = said(*points, goal=GOALS["fast-validation"])
    assert text.splitlines()[0].endswith("ddp workers=1 micro_batch=16")


def test_what_can_not_be_told_apart_is_named() -> None:
    text = said(
        *(
            launches(name, 100, noise=0.05, workers=workers)
            for name, workers in (("a", 2), ("b", 1))
        )
    )
    assert "Not distinguishable from ddp workers=2 (" in text
    assert "it needs fewer workers; its mean is within 5 % of the best." in text
    assert re.search(r"About \d+ more launch|It is practically equal to ddp workers=2", text)
    assert "Sure" not in text


def test_a_limit_is_said_with_its_value_and_the_points_at_it_are_named() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s <= 200ms")
    points = [
        launches(
            name,
            rate,
            count=1,
            workers=workers,
            step_p99_s=p99_s,
            step_p99_s_low=p99_s * 0.98,
            step_p99_s_high=p99_s * 1.02,
        )
        for name, rate, workers, p99_s in (("a", 100, 1, 0.15), ("b", 120, 2, 0.202))
    ]
    text = " ".join(said(*points, goal=goal).split())
    assert "It meets step_p99_s <= 200ms: step_p99_s 150.0 ± 3.0 ms." in text
    assert "Also undecided: ddp workers=2 (step_p99_s 202.0 ± 4.0 ms)." in text
    (edge,) = points[1:]
    alone = " ".join(said([row | {"step_p99_s": 0.199} for row in edge], goal=goal).split())
    assert "Undecided at 95 % whether it meets step_p99_s <= 200ms: step_p99_s" in alone


@pytest.mark.parametrize(
    ("rate", "why"), [(99, "it needs fewer workers; its mean"), (101, "best mean")]
)
def test_why_one_of_several_is_taken_is_said(rate: float, why: str) -> None:
    loud = {"samples_per_s_error": 5.0}
    many, few = (
        [row | loud for row in launches(name, mean, count=1, noise=0.0, workers=workers)]
        for name, mean, workers in (("a", 100, 2), ("b", rate, 1))
    )
    assert why in said(many, few)


@pytest.mark.parametrize(
    ("workers", "why"), [(2, "its steps are at most half as long"), (1, "it needs fewer workers")]
)
def test_a_step_of_half_the_time_is_a_reason(workers: int, why: str) -> None:
    long, short = (
        [
            row | {"samples_per_s_error": 5.0}
            for row in launches(name, rate, count=1, noise=0.0, workers=of, step_p50_s=step_s)
        ]
        for name, rate, of, step_s in (("long", 102, 2, 1.0), ("short", 100, workers, 0.4))
    )
    text = said(long, short)
    assert f"It is taken because {why}; its mean is within 5 % of the best." in text


def test_other_updates_are_offered_with_the_option_that_takes_them() -> None:
    local = {"semantics": "local", "sync": "local_sgd", "step_mean_s": 0.05}
    points = [launches("a", 100, workers=2), launches("b", 140, workers=2, **local)]
    assert "by local updates (--allow local takes it)" in said(*points)
    taken = said(*points, goal=Goal(maximize="samples_per_s", allow=("local",)))
    assert "Its updates are local: what that costs in samples to a loss was not measured." in taken
    assert "In plain PyTorch" not in taken


def test_what_was_left_out_is_counted_with_the_way_to_measure_it() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s < 1")
    text = said(
        launches("a", 100, step_p99_s=0.5),
        launches("b", 140),
        launches("c", 99, flags=["implausible"]),
        goal=goal,
    )
    assert (
        "No other point is known to be a candidate. Left out: 2 points of which step_p99_s is not"
        in text
    )
    assert "Measure(min_steps=100)" in text
    assert "Left out: 1 point whose numbers contradict each other." in text


def test_a_setting_that_a_mode_leaves_at_its_own_is_named_where_it_is_asked_for() -> None:
    points = [launches("a", 100, sync_period=4), launches("b", 90, sync_period=None)]
    text = said(*points, goal=Goal(maximize="samples_per_s", where="sync_period < 9"))
    assert "Left out: 1 point of which sync_period is not known." in text


def test_an_alternative_that_was_not_measured_is_not_said_to_fail_the_condition() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s < 1")
    points = [launches("a", 100, step_p99_s=0.5, workers=1), launches("b", 140, workers=2)]
    assert "samples/s, but its step_p99_s is not known." in said(*points, goal=goal)
    failing = [row | {"step_p99_s": 2.0} for row in points[1]]
    assert "samples/s, but does not meet the condition." in said(points[0], failing, goal=goal)


def test_a_point_that_is_too_slow_for_the_goal_is_said_to_be() -> None:
    points = [
        launches(name, rate, step_p50_s=step_s)
        for name, rate, step_s in (("a", 40, 0.1), ("b", 100, 0.4))
    ]
    text = said(*points, goal=GOALS["fast-validation"])
    assert "Left out: 1 point with less than 50% of the best samples_per_s." in text
    assert re.search(
        r"4 times shorter steps and 2.5\d* times fewer samples/s, but less than 50% of the best",
        text,
    )


def test_the_drift_that_a_verdict_rests_on_is_said() -> None:
    points = [launches(name, rate, count=1) for name, rate in (("a", 100), ("b", 140))]
    assert "The drift of the machine is not known, so one launch each shows no difference" in said(
        *points
    )
    assert "Not distinguishable by one launch each without canaries from" in said(*points)
    calm, drifted = (said(*points, watched(1, last_s)) for last_s in (1, 1.2))
    assert "The machine drifted by at most 1%: ignore smaller differences" in calm
    assert "The machine drifted by at most 20%: ignore smaller differences" in drifted
    several = [launches(name, rate) for name, rate in (("a", 100), ("b", 140))]
    assert "drifted" not in said(*several, watched(1, 1)) + said(*several)
    assert "drifted by at most 20%: the spread of launches contains it" in said(
        *several, watched(1, 1.2)
    )


def test_no_line_is_wider_than_a_narrow_terminal() -> None:
    text = said(launches("a", 100, workers=1), launches("b", 140, workers=2), width=80)
    assert max(map(len, text.splitlines())) <= 80


def test_of_points_that_are_set_alike_the_one_of_the_highest_throughput_is_taken() -> None:
    points = [
        launches(name, rate, micro_batch=rate, workers=1)
        for name, rate in (("a", 90), ("b", 140), ("c", 120))
    ]
    text = said(*points, launches("d", 300, workers=2), goal=Goal(minimize="workers"))
    assert text.splitlines()[0].endswith("ddp workers=1 micro_batch=140")
    assert (
        "2 other candidates with the same value. It has the highest samples_per_s of these." in text
    )
