"""One configuration for a goal: the best, one equal to it, or undecided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import GOALS, Goal, Recommendation, Study, recommend
from dtsweep.errors import SweepError
from dtsweep.inference.variance import PRIOR_SIGMA
from dtsweep.sweep.goal import Question
from tests.frames import trials


def launches(
    point: str, rate: float, /, *, count: int = 3, noise: float = 0.002, **fields: Any
) -> list[dict[str, Any]]:
    """Launches of a point; each session shifts all points alike by a percent."""
    rng = np.random.default_rng(sum(map(ord, point)))
    rates = [rate * (1 + 0.01 * number) * np.exp(rng.normal(0, noise)) for number in range(count)]
    return [
        {"point_id": point, "session": f"s{number}"}
        | {"samples_per_s": measured, "samples_per_s_error": measured * noise}
        | {"step_p50_s": 10 / measured, "step_p50_s_error": 10 / measured * noise, **fields}
        for number, measured in enumerate(rates)
    ]


def watched(*steps_s: float, half_width: float = 0.005) -> list[dict[str, Any]]:
    """Canaries of the first session, whose mean steps are known to a share."""
    watch = {"role": "canary", "point_id": "watch", "session": "s0", "half_width": half_width}
    return [
        watch | {"step_mean_s": step_s, "started_at": number}
        for number, step_s in enumerate(steps_s)
    ]


def one(
    *points: list[dict[str, Any]], goal: Goal = GOALS["throughput"], **options: Any
) -> Recommendation:
    (found,) = recommend(trials(*(row for point in points for row in point)), goal, **options)
    return found


def asked(max_launches: int = 8, **question: Any) -> str:
    """The column `question` of trials that are measured for the highest throughput."""
    asks = Question(goal=GOALS["throughput"], max_launches=max_launches, **question)
    return asks.as_json()


def test_the_highest_throughput_is_the_best_and_its_runner_up_is_named() -> None:
    found = one(launches("a", 100), launches("b", 140), launches("c", 120))
    assert (found.point["point_id"], found.answer, found.is_decided) == ("b", "best", True)
    assert found.others["point_id"].tolist() == ["c", "a"]
    assert found.others["ratio"].tolist() == pytest.approx([140 / 120, 1.4], rel=0.01)
    assert (found.others["ratio_low"] > 1).all()
    assert found.contenders.empty
    assert (found.others["possible_gain"] < 0).all()
    assert (found.rounds_to_decide, found.is_futile, found.assumed_sigma) == (0, False, None)
    by_energy = [
        launches("a", 100, energy_j_per_sample=2.0),
        launches("b", 90, energy_j_per_sample=1.0),
    ]
    assert one(*by_energy, goal=GOALS["energy"]).point["point_id"] == "b"


def test_of_equal_points_the_fewest_workers_are_taken_then_the_least_memory() -> None:
    near = [
        launches(name, rate, workers=workers, memory_peak_bytes=size)
        for name, rate, workers, size in zip(
            "abc", (100.2, 100, 100.1), (4, 2, 2), (1, 3, 2), strict=True
        )
    ]
    found = one(*near, launches("d", 60, workers=1))
    assert (found.point["point_id"], found.answer, found.is_decided) == ("c", "equal", True)
    equal = found.others.set_index("point_id")["is_equal"]
    assert equal.to_dict() == {"a": True, "b": True, "d": False}
    assert (found.others["possible_gain"] <= 0.03).all()


def test_points_that_launches_neither_separate_nor_show_to_be_equal_are_undecided() -> None:
    near = [launches(name, rate, noise=0.02) for name, rate in (("a", 100), ("b", 100.5))]
    narrow, wide = (
        one(*[[row | {"question": asked(indifference=zone)} for row in point] for point in near])
        for zone in (0.0001, 0.4)
    )
    assert (narrow.zone, narrow.answer, narrow.is_decided) == (0.0001, "undecided", False)
    assert narrow.others["is_contender"].tolist() == [True]
    assert (narrow.others["possible_gain"] > 0.03).all()
    assert (wide.zone, wide.answer) == (0.4, "equal")


def test_a_skipped_point_takes_no_time_of_the_rounds_ahead() -> None:
    near = [
        launches(name, rate, noise=0.005, trial_s=10.0, question=asked(20, indifference=0.005))
        for name, rate in (("a", 100), ("b", 100.5))
    ]
    skipped = [{"point_id": "c", "status": "skipped", "trial_s": None, "session": None}]
    without, found = one(*near), one(*near, skipped)
    assert (found.answer, found.rounds_to_decide) == ("undecided", without.rounds_to_decide)
    assert found.rounds_to_decide
    # Each round measures two points.
    assert found.seconds_to_decide == pytest.approx(2 * 10.0 * found.rounds_to_decide)
    assert not without.is_futile
    assert not found.is_futile


@pytest.mark.slow
def test_eight_looks_need_more_evidence_than_one() -> None:
    points = [
        own_launches(name, rate, spread=0.04, workers=workers)
        for name, rate, workers in (("a", 100, 1), ("b", 104.7, 2))
    ]
    grid = one(*points)
    question = asked(8, indifference=0.001)
    looked_at = one(*[[row | {"question": question} for row in point] for point in points])
    assert (grid.point["point_id"], grid.answer, grid.question) == ("b", "best", None)
    assert (looked_at.point["point_id"], looked_at.answer) == ("b", "undecided")
    assert looked_at.question is not None


@pytest.mark.slow
def test_launches_that_followed_each_other_are_separated_beyond_the_drift_only() -> None:
    points = [
        [
            row | {"session": f"{name}{number}", "flags": ["adjacent_launches"]}
            for number, row in enumerate(launches(name, rate, workers=workers))
        ]
        for name, rate, workers in (("a", 100, 2), ("b", 105, 4))
    ]
    drifted = watched(0.1, 0.12)
    found = one(*points, drifted)
    assert (found.point["point_id"], found.answer) == ("b", "undecided")
    (other,) = found.others.to_dict("records")
    assert other["ratio_low"] < 1 < other["ratio_high"]
    assert found.rounds_to_decide == np.inf
    set_alike = one(*points, drifted, goal=Goal(minimize="workers"))
    assert (set_alike.point["point_id"], set_alike.answer) == ("a", "best")


def own_launches(point: str, rate: float, *, spread: float, workers: int) -> list[dict[str, Any]]:
    """Eight launches of a point in sessions of its own, with this standard deviation."""
    noise = np.random.default_rng(workers).normal(size=8)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    return [
        {"point_id": point, "session": f"{point}{number}", "workers": workers}
        | {"samples_per_s": measured, "samples_per_s_error": 0.002 * measured}
        for number, measured in enumerate(np.exp(np.log(rate) + spread * noise))
    ]


def test_a_point_that_another_candidate_significantly_beats_is_not_recommended() -> None:
    # The best mean is too noisy to beat either; b significantly beats c.
    found = one(
        own_launches("a", 1000, spread=0.08, workers=8),
        own_launches("b", 995, spread=0.002, workers=4),
        own_launches("c", 975, spread=0.002, workers=1),
    )
    assert found.answer == "undecided"
    contenders = {found.point["point_id"], *found.contenders["point_id"]}
    assert contenders == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_contenders_have_an_interval_that_holds_one_and_no_other_beats_the_recommended(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    points = [
        own_launches(f"{workers}", rng.uniform(950, 1050), spread=spread, workers=workers)
        for workers, spread in zip(range(1, 9), rng.uniform(0.001, 0.05, 8), strict=True)
    ]
    found = one(*points)
    others = found.others
    holds_one = others["ratio_low"].le(1) & others["ratio_high"].ge(1)
    # A point of which the recommended one shows no difference may be beaten by a third one.
    assert holds_one[others["is_contender"]].all()
    assert (others["ratio_high"] >= 1).all()
    assert (found.answer == "best") == found.contenders.empty


def test_more_workers_that_bring_much_by_the_means_lead_though_launches_do_not_show_it() -> None:
    found = one(
        launches("a", 100, count=1, noise=0.3, workers=1),
        launches("b", 150, count=1, noise=0.3, workers=2),
    )
    assert (found.point["point_id"], found.answer) == ("b", "single_launch")
    assert found.contenders["point_id"].tolist() == ["a"]


def test_single_launches_differ_by_an_assumed_noise_and_decide_nothing() -> None:
    # 1.96 · √(2 · 0.03²) is 8.3 %, windows add little to it.
    near = one(launches("a", 100, count=1), launches("b", 107, count=1))
    far = one(launches("a", 100, count=1), launches("b", 110, count=1), watched(1))
    assert (near.contenders["point_id"].tolist(), far.contenders.empty) == (["a"], True)
    judged = (far.point["point_id"], far.answer, far.is_decided)
    assert judged == ("b", "single_launch", False)
    assert far.others["ratio_low"].isna().all()
    # One canary says nothing of a drift.
    assert far.drift is None


@pytest.mark.parametrize(
    ("canaries", "drift", "contenders"),
    [
        (watched(1, 1), 0.005 * 2**0.5, []),
        (watched(1, 1.2), 0.2, ["a"]),
        # Canaries that are too imprecise to show a drift of that size.
        (watched(1, 1, half_width=0.2), 0.2 * 2**0.5, ["a"]),
    ],
)
def test_single_launches_nearer_than_the_machine_may_have_drifted_are_contenders(
    canaries: list[dict[str, Any]], drift: float, contenders: list[str]
) -> None:
    quick = launches("a", 100, count=1, workers=1, step_p50_s=0.1)
    found = one(quick, launches("b", 118, count=1, workers=2, step_p50_s=0.11), canaries)
    assert found.point["point_id"] == "b"
    assert found.drift == pytest.approx(drift)
    assert found.contenders["point_id"].tolist() == contenders
    assert found.alternatives["point_id"].tolist() == ([] if contenders else ["a"])


@pytest.mark.parametrize(("repeated", "answer"), [(True, "best"), (False, "single_launch")])
def test_what_is_known_of_noise_in_general_bounds_that_of_two_launches(
    answer: str, *, repeated: bool
) -> None:
    # Two rows alone tell a standard deviation of 1.0 to 73.5 %.
    ladder = {8: 5200.0, 16: 10_100.0, 32: 21_300.0, 64: 37_000.0}
    rows = list(ladder.items())
    if repeated:
        rows.append((32, 21_300 / 1.023))
    found = one(
        [
            {"point_id": f"{workers}", "workers": workers, "samples_per_s": rate}
            | {"harness": "imported", "session": None}
            for workers, rate in rows
        ]
    )
    assert (found.point["workers"], found.answer) == (64, answer)
    assert found.is_decided == repeated
    assert found.assumed_sigma == (PRIOR_SIGMA if repeated else None)


def test_a_condition_leaves_points_out_and_counts_those_it_is_unknown_of() -> None:
    goal = Goal(maximize="samples_per_s", where="step_p99_s <= 200ms")
    found = one(
        launches("a", 100, step_p99_s=0.1),
        launches("b", 140, step_p99_s=0.3),
        launches("c", 200, step_p99_s=None),
        goal=goal,
    )
    assert (found.point["point_id"], found.answer) == ("a", "only_candidate")
    assert (found.unknown, found.unmeasured) == (1, ("step_p99_s",))
    # The one beyond the limit is what it gives up; of the unknown one it is not known.
    more = found.alternatives[found.alternatives["better"] == "samples_per_s"]
    assert more["is_candidate"].tolist() == [False]


LIMIT = Goal(maximize="samples_per_s", where="step_p99_s <= 200ms")


def with_p99(value_s: float) -> dict[str, Any]:
    """A 99th percentile with its interval of 2 % within a launch."""
    shares = {"": 1, "_low": 0.98, "_high": 1.02, "_error": 0.02 / 1.96}
    return {f"step_p99_s{end}": value_s * share for end, share in shares.items()}


@pytest.mark.parametrize(
    ("value_s", "half_width", "verdict", "is_at_limit"),
    [
        (0.15, 0.02, "meets", False),
        (0.199, 0.02, "meets", True),  # 195 to 203 ms: not beyond 206
        (0.201, 0.02, "meets", True),  # 197 to 205 ms
        (0.199, 0.10, "undecided", False),
    ],
)
def test_a_point_within_the_zone_of_a_limit_meets_it(
    value_s: float, half_width: float, verdict: str, is_at_limit: bool
) -> None:
    # Half of the interval of three launches is 4.303 / √3 standard deviations.
    spread = half_width / 4.303 * 3**0.5
    rows = [
        row | {"step_p99_s": value_s * (1 + sign * spread)}
        for row, sign in zip(launches("a", 100), (-1, 0, 1), strict=True)
    ]
    found = one(rows, goal=LIMIT)
    judged = (found.point["condition_verdict"], found.point["is_at_limit"])
    assert judged == (verdict, is_at_limit)


def test_where_differences_count_drift_is_a_share_of_what_was_measured() -> None:
    sent = (("a", 1, 1000.0), ("b", 4, 1010.0), ("none", 1, 0.0))
    rows = [
        {"point_id": name, "workers": workers, "bytes_sent_per_step": value}
        for name, workers, value in sent
    ]
    found = one(rows, watched(1, 1.1), goal=Goal(maximize="bytes_sent_per_step"))
    assert (found.point["point_id"], found.contenders["point_id"].tolist()) == ("b", ["a"])


def test_single_launches_at_a_limit_are_undecided_and_named() -> None:
    values = {"a": (100, 0.15), "b": (120, 0.198), "c": (130, 0.202), "d": (900, 0.25)}
    points = [
        launches(name, rate, count=1, **with_p99(value_s))
        for name, (rate, value_s) in values.items()
    ]
    found = one(*points, watched(1, 1), goal=LIMIT)
    # An assumed noise of 3 % between launches widens the intervals.
    verdicts = found.others.set_index("point_id")["condition_verdict"]
    assert verdicts.to_dict() == {"b": "undecided", "c": "undecided"}
    assert found.point["point_id"] == "a"
    assert found.undecided["point_id"].tolist() == ["c", "b"]


def test_conditions_hold_by_the_interval_of_a_single_launch() -> None:
    points = [
        *launches("a", 100, count=1, **with_p99(0.15)),
        *launches("c", 130, count=1, **with_p99(0.202)),
        *launches("d", 900, count=1, **with_p99(0.25)),
        *launches("e", 100, count=1, step_p99_s=None),
    ]
    study = Study(trials(*points))
    for where, judged in {
        "step_p99_s <= 200ms": ["meets", "undecided", "misses", "unknown"],
        "not step_p99_s <= 200ms": ["misses", "undecided", "meets", "unknown"],
        "step_p99_s <= 200ms or workers = 1": ["meets"] * 4,
        "step_p99_s <= 200ms and workers > 1": ["misses"] * 4,
        "memory <= 1GiB": ["unknown"] * 4,
    }.items():
        condition = study.condition(where)
        by_point = dict(
            zip(study.points["point_id"], condition.verdicts(study.points), strict=True)
        )
        assert [by_point[name] for name in "acde"] == judged, where


def test_only_exact_updates_are_recommended_unless_others_are_allowed() -> None:
    points = [
        launches("a", 100, workers=2),
        launches("b", 140, workers=2, semantics="local", step_mean_s=0.1),
    ]
    found = one(*points)
    assert found.point["point_id"] == "a"
    refused = found.alternatives[~found.alternatives["is_allowed"]]
    assert refused["point_id"].tolist() == ["b"]
    assert refused["samples_per_s_ratio"].tolist() == pytest.approx([1.4], rel=0.01)
    allowed = one(*points, goal=Goal(maximize="samples_per_s", allow=("local",)))
    assert allowed.point["point_id"] == "b"


@pytest.mark.slow
def test_one_worker_is_taken_without_exact_updates_only_where_there_is_nothing_else() -> None:
    alone = launches("b", 140, semantics="local", step_mean_s=0.1)
    assert one(launches("a", 100), alone).alternatives.empty
    allowed = Goal(maximize="samples_per_s", allow=("local",))
    assert one(launches("a", 100), alone, goal=allowed).point["point_id"] == "a"
    assert one(alone, goal=allowed).point["point_id"] == "b"


@pytest.mark.slow
def test_one_worker_that_its_mode_trains_differently_is_a_choice_of_its_own() -> None:
    updates: dict[str, dict[str, Any]] = {
        "b": {"sync": "diloco", "outer_learning_rate": 0.7, "outer_momentum": 0.9},
        "c": {"sync": "federated", "participation": 0.5},
        "d": {"sync": "local_sgd", "local_momentum": "reset"},
    }
    local = {"semantics": "local", "step_mean_s": 0.1}
    alone = [launches(name, 140, **local, **update) for name, update in updates.items()]
    found = one(launches("a", 100), *alone, goal=Goal(maximize="samples_per_s", allow=("local",)))
    assert {found.point["point_id"], *found.others["point_id"]} == {"a", *updates}


@pytest.mark.slow
def test_updates_that_are_not_allowed_are_offered_only_where_they_meet_the_condition() -> None:
    local = {"semantics": "local", "workers": 2}
    points = [
        launches("a", 100, step_p99_s=0.1),
        launches("b", 200, **local, step_mean_s=0.1),
        launches("c", 300, **local, step_mean_s=0.1, step_p99_s=9.0),
        launches("d", 150, **local, step_mean_s=0.1, step_p99_s=0.1),
    ]
    found = one(*points, goal=Goal(maximize="samples_per_s", where="step_p99_s <= 200ms"))
    assert found.alternatives.loc[~found.alternatives["is_allowed"], "point_id"].tolist() == ["d"]
    assert (found.unknown, found.unmeasured) == (0, ())


def test_each_model_and_environment_has_its_own_recommendation() -> None:
    points = [
        launches("a", 100, model_digest="s", flops_per_sample=1.0),
        launches("b", 10, model_digest="l", flops_per_sample=9.0),
        launches("c", 5, model_digest="l", flops_per_sample=9.0, env_id="other"),
    ]
    rows = trials(*(row for point in points for row in point))
    assert [each.point["point_id"] for each in recommend(rows)] == ["a", "b", "c"]


RATE: dict[str, Any] = {"maximize": "samples_per_s"}


@pytest.mark.parametrize(
    ("fields", "goal", "said"),
    [
        ({}, Goal(**RATE, where="workers > 9"), "none of 1 points meets 'workers > 9': 1 fail it"),
        ({}, Goal(**RATE, where="step_p99_s < 1"), "needs windows of 100"),
        ({}, Goal(**RATE, minimize="latency_s"), "one objective"),
        ({}, Goal(**RATE, allow=("lossless",)), "allow some of lossy, stale, local"),
        ({}, Goal(maximize="sync"), "'sync' is not a column of numbers"),
        ({}, GOALS["energy"], "energy_j_per_sample was not measured on any point"),
        ({}, GOALS["cost"], "is unknown: nodes have no price; --prices FILE gives"),
        ({"semantics": "stale"}, GOALS["throughput"], "--allow stale"),
        ({"status": "oom_device"}, GOALS["throughput"], "no trial ended ok"),
        (
            {"sync": "as_written", "samples_per_s": None},
            GOALS["throughput"],
            "Give samples_per_step (--samples-per-step), or take another objective: --minimize",
        ),
    ],
)
def test_goals_that_lead_nowhere_are_refused_in_a_line(
    fields: dict[str, Any], goal: Goal, said: str
) -> None:
    with pytest.raises(SweepError) as refused:
        one(launches("a", 100, **fields), goal=goal)
    assert said in str(refused.value)


@pytest.mark.slow
def test_a_lead_that_no_window_knows_the_error_of_beats_only_what_is_far() -> None:
    rows = [
        {"point_id": name, "workers": workers, "samples_per_s": rate, "samples_per_s_error": None}
        for name, workers, rate in (("big", 8, 100.01), ("small", 1, 100.0), ("far", 1, 50.0))
    ]
    found = one(rows, watched(1, 1))
    assert (found.point["point_id"], found.answer) == ("big", "single_launch")
    assert found.contenders["point_id"].tolist() == ["small"]


@pytest.mark.slow
def test_a_point_of_another_model_that_sends_nothing_changes_no_recommendation() -> None:
    near, other = (
        [
            {"point_id": name, "workers": workers, "bytes_sent_per_step": value, "model_digest": of}
            for name, workers, value in sent
        ]
        for of, sent in (("one", (("a", 1, 1000.0), ("b", 4, 980.0))), ("other", (("c", 1, 0.0),)))
    )
    goal = Goal(minimize="bytes_sent_per_step")
    alone, (beside, _) = one(near, goal=goal), recommend(trials(*near, *other), goal)
    columns = ["ratio", "is_contender"]
    pd.testing.assert_frame_equal(beside.others[columns], alone.others[columns])


@pytest.mark.slow
def test_a_goal_may_be_given_by_its_name() -> None:
    with pytest.raises(SweepError, match="did you mean 'throughput'"):
        recommend(trials(*launches("a", 100)), "througput")
    (found,) = recommend(trials(*launches("a", 100), *launches("b", 50)), "throughput")
    assert found.point["point_id"] == "a"
