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
from dtsweep.report.lead import lead
from dtsweep.report.recommendation import advice_on, print_all, remarks_on
from dtsweep.report.remarks import LONGEST_LINE
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


def test_an_answer_has_six_lines_at_most_each_of_them_short() -> None:
    text = said(launches("a", 100, workers=1), launches("b", 140, workers=2))
    first, second, third, fourth, fifth, *_ = text.splitlines()
    assert first == "Take ddp workers=2: the best of 2 by samples_per_s."
    assert (
        second == "It is 40 % better than the next, with workers=1; it is the baseline ddp itself."
    )
    sure = r"95 % sure.*: it is better than all others, by at least (3[89]\.\d) %\."
    assert re.fullmatch(sure, third)
    assert fourth.startswith("What limits it is not known")
    assert re.fullmatch(
        r"It has 14\d\.\d ± \d\.\d samples/s; a median step .* ms \(±: 95 %\)\.", fifth
    )
    open_ones = [own_launches(name, 100, spread=0.05, workers=n) for n, name in enumerate("abc", 1)]
    for points in (UNDECIDED, open_ones, [launches("a" * 90, 100, env="b" * 90)]):
        (found,) = recommend(study_of(*points), GOALS["throughput"])
        for varying in (
            ["workers"],
            ["workers", "micro_batch", "learning_rate", "workload_layers"],
        ):
            (advice,) = advice_on([found], varying)
            assert len(advice.answer) <= 6
            assert max(len(one.text) for one in advice.answer) <= LONGEST_LINE


PLAIN = {"workers": 2, "micro_batch": 16}


@pytest.mark.parametrize(
    ("best", "other", "words"),
    [
        ({**PLAIN, "micro_batch": 64}, PLAIN, "the next, the baseline ddp with micro_batch=16."),
        (
            PLAIN,
            {**PLAIN, "accumulation": 4},
            "with accumulation=4; it is the baseline ddp itself.",
        ),
        ({**PLAIN, "sync": "ring"}, PLAIN, "the next, the baseline ddp."),
        ({**PLAIN, "sync": "ring"}, {**PLAIN, "workers": 1}, "the next, ddp workers=1."),
    ],
)
def test_the_point_is_compared_with_the_next_one_and_with_plain_ddp_of_as_many_workers(
    best: dict[str, Any], other: dict[str, Any], words: str
) -> None:
    second = said(launches("a", 150, **best), launches("b", 100, **other)).splitlines()[1]
    assert second.startswith("It is 50 % better than the next")
    assert second.endswith(words)


@pytest.mark.parametrize(
    ("rate", "noise", "words"),
    [
        (40, 0.002, "2.5 times as good as"),
        (99.9, 0.001, "equal within 3 % to"),
        (96, 0.008, "better than"),
        (97, 0.03, "not shown to differ from"),
    ],
)
def test_a_lead_that_is_not_known_to_half_of_it_is_no_number(
    rate: float, noise: float, words: str
) -> None:
    points = [
        launches(name, of, noise=noise, workers=n, micro_batch=8)
        for n, name, of in ((1, "a", 100), (2, "b", rate))
    ]
    (found,) = recommend(study_of(*points), GOALS["throughput"])
    chosen = found.point["point_id"]
    (one,) = lead(found, ["workers"])
    assert chosen == "a"
    assert re.sub(r"(\d)\.\d %", r"\1 %", one.numbers["by"]) == words


def test_the_headline_names_what_varies_among_all_points_not_among_candidates_alone() -> None:
    values = (("a", 40, 0.1, 1, 16), ("b", 45, 0.2, 2, 16), ("c", 5, 0.01, 1, 4))
    points = [
        launches(name, rate, workers=workers, micro_batch=size, step_p50_s=step_s)
        for name, rate, step_s, workers, size in values
    ]
    text = said(*points, goal=GOALS["fast-validation"])
    assert text.startswith("Take ddp workers=1 micro_batch=16: the best of 2 by lowest latency_s")


def test_points_that_are_equal_are_counted_with_the_reason_for_the_choice() -> None:
    values = (("a", 100, 1, 8), ("b", 100.2, 2, 8), ("c", 90, 1, 4))
    points = [
        launches(name, rate, noise=0.001, workers=workers, micro_batch=size)
        for name, rate, workers, size in values
    ]
    remarks = numbers(*points)
    taken = remarks["equal"]
    assert (taken["point"], taken["candidates"]) == ("ddp workers=1 micro_batch=8", 3)
    assert 0 < remarks["others_at_most"]["gain"] < 0.01
    assert remarks["others_at_most"]["why"] == "; it has the fewest workers"


UNDECIDED = [launches("a", 100, noise=0.02, workers=1), launches("b", 102, noise=0.02, workers=2)]
THROUGHPUT = Question(goal=GOALS["throughput"])


@pytest.mark.parametrize(
    ("question", "rounds", "step"),
    [
        (None, 4, "run the sweep with `--goal throughput`, without `repeats` (about 7 min)"),
        (replace(THROUGHPUT, max_launches=4), 4, "run the same command with `--max-launches 7`"),
        (replace(THROUGHPUT, max_launches=60), 4, "run the same command again: it continues"),
        (replace(THROUGHPUT, max_launches=4), None, "run the same command again: it continues"),
        (Question(goal=None), 4, "run the sweep with `--goal throughput`"),
    ],
)
def test_undecided_names_what_may_be_better_how_much_it_loses_and_one_run_with_its_time(
    question: Question | None, rounds: int | None, step: str
) -> None:
    (found,) = recommend(study_of(*UNDECIDED, question=question), GOALS["throughput"])
    time_s = 400.0 if rounds else None
    found = replace(found, is_futile=False, rounds_to_decide=rounds, seconds_to_decide=time_s)
    (advice,) = advice_on([found], ["workers"])
    first, second, third, fourth, _ = [one.text for one in advice.answer]
    assert first == "For now take ddp workers=2: undecided which of 2 is best by samples_per_s."
    assert second == "The one with workers=1 may be better; it is the baseline ddp itself."
    sure = r"95 % sure, if .+: the best is at most [\d.]+ % better, after 3 \w+\."
    assert re.fullmatch(sure, third)
    time = "(about 7 min)" if rounds else "(how many launches it takes is not known)"
    assert fourth == f"Next: {step.removesuffix(f' {time}')} {time}."


@pytest.mark.slow
def test_where_noise_is_large_less_of_it_is_asked_for() -> None:
    drifted = watched(1, 1.2)
    short = {"flags": ["imprecise"], "stop_reason": "max_seconds"}
    imprecise = [[row | short for row in point] for point in UNDECIDED]
    remarks = numbers(*imprecise, drifted)
    assert remarks["quieter"]["drift"] == pytest.approx(0.2)
    assert remarks["longer_windows"]["setting"] == "max_seconds"
    assert not {"quieter", "longer_windows"} & numbers(*UNDECIDED, watched(1, 1.05)).keys()


def test_a_loss_without_a_useful_limit_is_not_known_and_a_useful_one_settles_it() -> None:
    def told(spread: float, zone: float) -> dict[str, Mapping[str, Any]]:
        points = [
            own_launches(name, 100, spread=spread, workers=n) for n, name in ((1, "a"), (2, "b"))
        ]
        return numbers(*points, question=replace(THROUGHPUT, indifference=zone))

    loud = told(2.0, 0.05)
    assert "loss_unknown" in loud
    assert loud["futile"]["way"] == "measure on a quiet machine"
    near = told(0.05, 0.001)
    assert re.fullmatch(r"accept (\d+) % less with `--indifference \1%`", near["futile"]["way"])


SINGLE = (("a", 100), ("b", 102), ("c", 60))


def test_one_launch_each_is_said_to_decide_nothing() -> None:
    points = [launches(*of, count=1, workers=n) for n, of in zip((1, 2, 4), SINGLE, strict=True)]
    first, _, third, *_ = text = said(*points).splitlines()
    assert first == ("For now take ddp workers=2: best of 3 by samples_per_s, each launched once.")
    assert third == "Not sure: 1 other may be as good, if launches differ by 3 % (assumed)."
    assert "Next: run the sweep with `--goal throughput`, without `repeats`." in text
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
    assert re.search(r"4 points without a number: .* and 1 more\.\n", said(*points, *others))
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
    assert remarks["run"]["run"].startswith("run the ")
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
    assert "samples/s; step_p99_s 150" in text
    assert "Open whether they meet it, too: ddp workers=2 (202" in text
    assert "Ddp workers=2 may be better" in text or "The one with workers=2 may be better" in text
    alone = " ".join(said(point("b", 120, 2, 0.199), goal=goal).split())
    assert "It is open whether it meets step_p99_s <= 200ms." in alone
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
        "It was compared with nothing: it is the only point that fits.",
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
    shares = r"1/4 of the step time and 1/2.5\d* of the samples/s, but less than 50 % of the best"
    assert re.search(shares, text)


def test_of_points_that_are_set_alike_the_one_of_the_highest_throughput_is_taken() -> None:
    points = [
        launches(name, rate, micro_batch=rate, workers=1)
        for name, rate in (("a", 90), ("b", 140), ("c", 120))
    ]
    text = said(*points, launches("d", 300, workers=2), goal=Goal(minimize="workers"))
    assert text.splitlines()[:2] == [
        "Take ddp workers=1 micro_batch=140: one of the best of 4 by lowest workers.",
        "2 others with the same value; it has the highest samples_per_s.",
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


def test_a_rate_far_above_linear_is_doubted_before_the_answer() -> None:
    first, second = said(launches("a", 1, workers=1), launches("b", 47, workers=4)).splitlines()[:2]
    assert first.startswith(
        "Too fast: ddp workers=4 has 46.9 times the samples/s of workers=1, far"
    )
    assert second.startswith("Take ddp workers=4: ")
    superlinear = said(launches("a", 10, workers=1), launches("b", 50, workers=4))
    assert superlinear.startswith("Take ddp workers=4: ")
