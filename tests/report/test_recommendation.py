"""A recommendation in words: the answer, its evidence, and alternatives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from dtsweep.analysis import GOALS, Goal, Study, recommend
from dtsweep.report.next_step import run_that_decides
from dtsweep.report.recommendation import in_words, print_all, remarks_on
from dtsweep.sweep.goal import Question
from tests.analysis.test_recommend import launches, own_launches, watched
from tests.frames import trials


def study_of(*points: list[dict[str, Any]], question: Question | None = None) -> Study:
    common = {"question": question.as_json()} if question else {}
    return Study(trials(*(row for point in points for row in point), **common))


def said(
    *points: list[dict[str, Any]],
    goal: Goal = GOALS["throughput"],
    width: int = 400,
    question: Question | None = None,
) -> str:
    out = StringIO()
    study = study_of(*points, question=question)
    print_all(recommend(study, goal), study=study, console=Console(file=out, width=width))
    return out.getvalue()


def numbers_in(study: Study, goal: Goal = GOALS["throughput"]) -> dict[str, Mapping[str, Any]]:
    """Numbers of the remarks on the one recommendation, by code."""
    ((_, remarks),) = remarks_on(recommend(study, goal), study=study)
    return {one.code: one.numbers for one in remarks}


def numbers(
    *points: list[dict[str, Any]],
    goal: Goal = GOALS["throughput"],
    question: Question | None = None,
) -> dict[str, Mapping[str, Any]]:
    return numbers_in(study_of(*points, question=question), goal)


def test_the_first_line_is_the_answer_and_the_second_its_evidence() -> None:
    text = said(launches("a", 100, workers=1), launches("b", 140, workers=2))
    first, second = text.splitlines()[:2]
    assert (
        first == "Take ddp workers=2: the best of 2 configurations for the highest samples_per_s."
    )
    better = re.fullmatch(
        r"It is at least ([\d.]+) % better than every other one \(95 % confidence\)\.", second
    )
    assert better
    assert 38 < float(better[1]) < 40
    assert "Runner-up: ddp workers=1 (the recommended one has 1.39" in text


def test_the_headline_names_what_varies_among_all_points_not_among_candidates_alone() -> None:
    values = (("a", 40, 0.1, 1, 16), ("b", 45, 0.2, 2, 16), ("c", 5, 0.01, 1, 4))
    points = [
        launches(name, rate, workers=workers, micro_batch=size, step_p50_s=step_s)
        for name, rate, step_s, workers, size in values
    ]
    text = said(*points, goal=GOALS["fast-validation"])
    assert text.startswith("Take ddp workers=1 micro_batch=16: the best of 2 configurations for")


def test_points_that_are_equal_are_named_with_the_reason_for_the_choice() -> None:
    values = (("a", 100, 1, 8), ("b", 100.2, 2, 8), ("c", 90, 1, 4))
    points = [
        launches(name, rate, noise=0.001, workers=workers, micro_batch=size)
        for name, rate, workers, size in values
    ]
    remarks = numbers(*points)
    taken = remarks["equal"]
    assert (taken["point"], taken["candidates"]) == ("ddp workers=1 micro_batch=8", 3)
    assert 0 < remarks["others_at_most"]["gain"] < 0.01
    equal = {"points": ["ddp workers=2 micro_batch=8"], "why": "fewest workers"}
    assert remarks["equal_points"] == equal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "workers", "why"),
    [
        ((1.0, 2.0, 2.0), (1, 2, 2), "fewest workers"),
        ((1.0, 2.0, 3.0), (1, 1, 2), "fewest workers, then the least memory"),
        ((1.0, 2.0, 3.0), (1, 1, 1), "least memory"),
        ((1.0, 1.0, 1.0), (1, 1, 1), "best mean"),
    ],
)
def test_why_one_of_several_equal_points_is_taken_is_said(
    memory: tuple[float, ...], workers: tuple[int, ...], why: str
) -> None:
    points = [
        launches(name, 100, noise=0.001, memory_peak_bytes=size, workers=of)
        for name, size, of in zip("abc", memory, workers, strict=True)
    ]
    assert numbers(*points)["equal_points"]["why"] == why


UNDECIDED = [launches("a", 100, noise=0.02, workers=1), launches("b", 102, noise=0.02, workers=2)]
THROUGHPUT = Question(goal=GOALS["throughput"])


def test_undecided_says_what_is_left_and_the_next_step() -> None:
    first, second, *_ = said(*UNDECIDED).splitlines()
    assert first.startswith("Undecided after 3 launches: of 2 configurations, ddp workers=2 leads")
    assert re.match(r"ddp workers=1 may be up to [\d.]+ % better\. About \d+ more ", second)
    step = "run the sweep with `--goal throughput`, without `repeats`."
    assert re.search(rf"of each would be needed\. Next: {step}$", second)


@pytest.mark.parametrize(
    ("question", "step"),
    [
        (replace(THROUGHPUT, max_launches=4), "run the sweep with `--max-launches 7`"),
        (replace(THROUGHPUT, max_launches=60), "run the sweep again, it goes on"),
        (Question(goal=None), "run the sweep with `--goal throughput`"),
    ],
)
def test_the_run_that_decides_follows_from_the_question(question: Question, step: str) -> None:
    goal = GOALS["throughput"]
    run = run_that_decides(goal, question, harness="ray", launches=3, more_launches=4)
    assert run == step


@pytest.mark.slow
def test_where_noise_is_large_less_of_it_is_the_first_next_step() -> None:
    drifted = watched(1, 1.2)
    short = {"flags": ["imprecise"], "stop_reason": "max_seconds"}
    imprecise = [[row | short for row in point] for point in UNDECIDED]
    remarks = numbers(*imprecise, drifted)
    assert remarks["quieter"]["drift"] == pytest.approx(0.2)
    longer = {"setting": "max_seconds", "imprecise": 6, "trials": 6}
    assert remarks["longer_limit"] == longer
    codes = list(remarks)
    assert codes.index("quieter") < codes.index("longer_limit") < codes.index("more_launches")
    windows = {"samples_per_s_error": 0.1, "window_s": 1.0, "trial_s": 2.0, "startup_s": 1.0}
    by_launches = numbers(*([row | windows for row in point] for point in imprecise))
    assert "launches_limit" in by_launches
    assert "longer_limit" not in by_launches
    assert not {"quieter", "longer_limit"} & numbers(*UNDECIDED, watched(1, 1.05)).keys()


def test_of_points_that_may_be_better_some_have_their_gain_and_the_others_are_named() -> None:
    points = [
        own_launches(name, 100, spread=0.05, workers=number)
        for number, name in enumerate("abcdef", start=1)
    ]
    (found,) = recommend(study_of(*points), GOALS["throughput"])
    remarks = [one for line in in_words(found, varying=["workers"], named=1) for one in line]
    assert [one.code for one in remarks].count("may_be_better") == 1
    (others,) = [one for one in remarks if one.code == "others_may_be_better"]
    assert len(others.numbers["points"]) == 4
    three = ", ".join([r"ddp workers=\d"] * 3)
    assert re.fullmatch(rf"{three} and 1 more may be better, too\.", others.text)


def test_a_gain_without_a_useful_limit_is_unknown_and_a_useful_one_has_a_wider_zone() -> None:
    def told(spread: float, zone: float) -> dict[str, Mapping[str, Any]]:
        points = [
            own_launches(name, 100, spread=spread, workers=n) for n, name in ((1, "a"), (2, "b"))
        ]
        return numbers(*points, question=replace(THROUGHPUT, indifference=zone))

    loud = told(2.0, 0.05)
    assert "may_be_better_loud" in loud
    assert (loud["futile"]["launches"], loud["futile"]["zone"]) == ("over 20", 0.05)
    assert re.fullmatch(r"[\d.]+ %", loud["futile"]["sigma"])
    assert not {"wider_zone", "windows_limit"} & loud.keys()
    near = told(0.05, 0.001)
    assert near["futile"]["launches"] == "over 20"
    assert re.fullmatch(r"\d+%", near["wider_zone"]["zone"])


SINGLE = (("a", 100), ("b", 102), ("c", 60))


def test_one_launch_each_is_said_to_decide_nothing() -> None:
    points = [launches(*of, count=1, workers=n) for n, of in zip((1, 2, 4), SINGLE, strict=True)]
    first, second, *_ = said(*points).splitlines()
    assert first == (
        "Best of one launch each: ddp workers=2, of 3 configurations for the highest samples_per_s."
    )
    assert second == (
        "One launch of each decides nothing: 1 other configuration may be as good, if launches of "
        "one point differ by an assumed 3 %. Next: run the sweep with `--goal throughput`, without "
        "`repeats`."
    )
    inside = [[row | {"harness": "in_process"} for row in point] for point in points]
    assert "Next: run the sweep on Ray with `--goal throughput`." in said(*inside)


def lacking(name: str, status: str, **columns: Any) -> list[dict[str, Any]]:
    """A trial of a point that has no number."""
    nothing = dict.fromkeys(("samples_per_s", "latency_s", "step_mean_s", "step_p50_s"))
    return [row | nothing | {"status": status} for row in launches(name, 1, count=1, **columns)]


@pytest.mark.slow
def test_asked_points_that_have_no_number_are_named() -> None:
    points = [launches("a", 90, workers=1), lacking("c", "timeout", workers=2, micro_batch=64)]
    one = {"count": 1, "points": ["ddp workers=2 micro_batch=64 accumulation=1 (timeout)"]}
    assert numbers(*points)["not_measured"] == one
    others = [lacking(name, "oom_device", workers=of) for name, of in (("d", 4), ("e", 8))]
    others += [lacking("f", "hang", workers=16), lacking("g", "skipped", workers=32)]
    assert said(*points, *others).splitlines()[0].endswith(" and 1 more.")
    within = Goal(maximize="samples_per_s", where="workers <= 2")
    assert "not_measured" not in numbers(points[0], *others, goal=within)


def test_one_measured_point_of_several_that_were_planned_is_no_answer() -> None:
    frame = trials(*launches("a", 100, workers=2, micro_batch=8), *lacking("old", "user_error"))
    frame.attrs["planned"] = "a b c d e f g h"
    (found,) = recommend(Study(frame), GOALS["throughput"])
    remarks = numbers_in(Study(frame))
    assert remarks["no_answer"]["asked"] == 8
    assert remarks["no_answer"]["point"].startswith("ddp workers=2 micro_batch=8")
    assert remarks["not_begun"] == {"count": 7}
    assert remarks["run"] == {"run": "run the sweep again, it goes on"}
    assert not found.is_decided
    # The other one is of an earlier plan.
    assert found.not_measured.empty
    frame.attrs["planned"] = "a"
    assert numbers_in(Study(frame))["only_candidate"]["point"].startswith("ddp workers=2 ")


def test_a_limit_is_said_with_its_value_and_the_points_at_it_are_named() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s <= 200ms")

    def point(name: str, rate: float, workers: int, *values_s: float) -> list[dict[str, Any]]:
        rows = launches(name, rate, count=len(values_s), workers=workers)
        return [row | {"step_p99_s": value_s} for row, value_s in zip(rows, values_s, strict=True)]

    safe, edge = point("a", 100, 1, 0.149, 0.15, 0.151), point("b", 120, 2, 0.194, 0.202, 0.21)
    text = " ".join(said(safe, edge, goal=goal).split())
    assert "It meets step_p99_s <= 200ms: step_p99_s 150" in text
    assert "Also open: ddp workers=2 (step_p99_s 202" in text
    assert re.search(r"ddp workers=2 may be up to 2\d(.\d)? % better, if it meets the cond", text)
    alone = " ".join(said(point("b", 120, 2, 0.199), goal=goal).split())
    assert "It is open at 95 % whether it meets step_p99_s <= 200ms: step_p99_s 199" in alone
    near = numbers(point("a", 100, 1, 0.198, 0.2, 0.202), goal=goal)
    assert near["at_limit"]["zone"] == 0.03


def test_other_updates_are_offered_with_the_option_that_takes_them() -> None:
    local = {"semantics": "local", "sync": "local_sgd", "step_mean_s": 0.05}
    points = [launches("a", 100, workers=2), launches("b", 140, workers=2, **local)]
    assert "by local updates (--allow local takes it)" in said(*points)
    taken = said(*points, goal=Goal(maximize="samples_per_s", allow=("local",)))
    assert "Its updates are local. Updates that are not exact may need more samples" in taken


def test_what_was_left_out_is_counted_with_the_way_to_measure_it() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s < 1")
    known, unknown = launches("a", 100, step_p99_s=0.5, workers=1), launches("b", 140, workers=2)
    doubted = launches("c", 99, flags=["implausible"])
    text = said(known, unknown, doubted, goal=goal)
    for words in (
        "No other point is known to be a candidate.",
        "Left out: 2 points of which step_p99_s is not known",
        "Measure(min_steps=100)",
        "Left out: 1 point whose numbers can't be trusted.",
        # An alternative that was not measured is not said to fail the condition.
        "samples/s, but its step_p99_s is not known.",
    ):
        assert words in text
    failing = [row | {"step_p99_s": 2.0} for row in unknown]
    assert "samples/s, but does not meet the condition." in said(known, failing, goal=goal)


def test_a_point_that_is_too_slow_for_the_goal_is_said_to_be() -> None:
    points = launches("a", 40, step_p50_s=0.1), launches("b", 100, step_p50_s=0.4)
    text = said(*points, goal=GOALS["fast-validation"])
    assert "Left out: 1 point with less than 50 % of the best samples_per_s." in text
    shares = r"1/4 of the step time and 1/2.5\d* of the samples/s, but less than 50 % of the best"
    assert re.search(shares, text)


@pytest.mark.slow
def test_the_drift_that_an_answer_rests_on_is_said() -> None:
    points = [launches(name, rate, count=1) for name, rate in (("a", 100), ("b", 140))]
    assert "The drift of the machine is not known, and single launches have it." in said(*points)
    calm = said(*points, watched(1, 1))
    assert "The machine drifted by at most 1 %: ignore smaller differences" in calm
    several = [launches(name, rate) for name, rate in (("a", 100), ("b", 140))]
    assert "drifted" not in said(*several, watched(1, 1))
    drifted = said(*several, watched(1, 1.2))
    assert "drifted by at most 20 %: the spread of launches contains it" in drifted


def test_of_points_that_are_set_alike_the_one_of_the_highest_throughput_is_taken() -> None:
    points = [
        launches(name, rate, micro_batch=rate, workers=1)
        for name, rate in (("a", 90), ("b", 140), ("c", 120))
    ]
    text = said(*points, launches("d", 300, workers=2), goal=Goal(minimize="workers"))
    assert text.splitlines()[:2] == [
        "Take ddp workers=1 micro_batch=140: one of the best of 4 configurations for the lowest "
        "workers.",
        "2 other configurations with the same value. It has the highest samples_per_s of these.",
    ]


def test_workers_that_exchange_nothing_are_named_with_a_remedy_and_not_offered() -> None:
    apart = {"semantics": "not_exchanged", "gradients_reason": "no collective was called"}
    points = [launches("a", 100, workers=1), launches("b", 198, workers=2, **apart)]
    first, second = said(*points).splitlines()[:2]
    assert first == (
        "Nothing exchanged: the 2-worker runs train a separate model in each worker: no collective "
        "was called. Start the process group in the script, and wrap the model "
        "(docs/own-loops.md). They are not recommended."
    )
    assert second.startswith("Take ddp workers=1 micro_batch=4 accumulation=1:")
    (found,) = recommend(study_of(*points), GOALS["throughput"])
    assert found.alternatives.empty


def test_samples_that_all_workers_load_are_counted_twice_and_not_recommended() -> None:
    reason = "all workers loaded the same batches; give the DataLoader a DistributedSampler"
    same = launches("b", 198, workers=2, flags=["same_batches"], gradients_reason=reason)
    text = said(launches("a", 100, workers=1), same)
    assert text.startswith(
        "Same samples: each step of ddp workers=2 has fewer samples than are counted: "
        f"{reason}. Not recommended.\nTake ddp workers=1 micro_batch=4 accumulation=1: "
    )
    assert "Left out: 1 point whose numbers can't be trusted." in text
    assert "times the samples/s" not in text


def test_a_rate_far_above_linear_is_doubted_before_the_answer_and_in_it() -> None:
    first, second = said(launches("a", 1, workers=1), launches("b", 47, workers=4)).splitlines()[:2]
    assert first.startswith(
        "Too fast: ddp workers=4 has 46.9 times the samples/s of workers=1, far"
    )
    assert second.startswith("Take ddp workers=4: ")
    assert second.endswith(" Doubtful: its rate is far above linear.")
    superlinear = said(launches("a", 10, workers=1), launches("b", 50, workers=4))
    assert superlinear.startswith("Take ddp workers=4: ")


def test_imported_rows_of_one_point_that_differ_by_much_may_be_of_several_machines() -> None:
    imported = {"harness": "imported", "session": None}
    rows = [{"point_id": "a", "samples_per_s": rate, **imported} for rate in (6_000, 18_000)]
    text = said(rows, launches("b", 10, workers=2, **imported))
    assert text.startswith("Rows of ddp workers=1 differ by 3 times: are they of the same machine?")
    assert "Rows of" not in said(rows[:1], launches("b", 10, workers=2, **imported))
