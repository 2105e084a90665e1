from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dtsweep.analysis import difference
from dtsweep.errors import SweepError
from dtsweep.sweep.goal import GOALS, Question
from tests.analysis.noise import frame_of, sweeps
from tests.frames import trials
from tests.report.study import canary

FAST, SLOW = [110.0, 121.0, 108.0, 118.0], [100.0, 111.0, 97.0, 109.0]


def point(
    name: str,
    rates: list[float],
    *,
    sessions: str | None = None,
    error: float | None = None,
    **fields: Any,
) -> list[dict[str, Any]]:
    """A point with so many samples/s in each launch.

    The launches are its own unless sessions are given.

    `error` is the standard error within a launch, as a share of the rate.
    """
    named = (sessions or [f"{name}{number}" for number in range(len(rates))])[: len(rates)]
    share = np.nan if error is None else error
    return [
        {"point_id": name, "session": session, "samples_per_s": rate, "step_p50_s": 10 / rate}
        | {"samples_per_s_error": share * rate, "latency_s_error": share * 10 / rate}
        | fields
        for session, rate in zip(named, rates, strict=True)
    ]


def by_throughput(frame: pd.DataFrame, a: str = "a", b: str = "b") -> pd.Series[Any]:
    return difference(frame, a, b).set_index("of").loc["samples_per_s"]


def test_launches_of_their_own_are_compared_by_welch_and_shared_ones_one_by_one() -> None:
    logs = np.log(FAST), np.log(SLOW)
    apart = stats.ttest_ind(logs[0], logs[1][:3], equal_var=False)
    for method, sessions, launches, expected in (
        ("welch", None, 3, apart),
        ("paired", "pqrs", 4, stats.ttest_rel(*logs)),
    ):
        rows = point("a", FAST, sessions=sessions), point("b", SLOW[:launches], sessions=sessions)
        found = by_throughput(trials(*rows[0], *rows[1]))
        assert (found["method"], found["launches_a"], found["launches_b"]) == (method, 4, launches)
        ends = np.log(found[["ratio_low", "ratio_high"]].astype(float)).tolist()
        assert ends == pytest.approx([*expected.confidence_interval()])


def test_pairs_see_a_difference_in_both_quantities_that_launches_would_hide() -> None:
    paired = trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs"))
    assert difference(paired, "a", "b")["of"].tolist() == ["samples_per_s", "latency_s"]
    # The verdict is on the first point.
    for pair, verdict in ((("a", "b"), "faster"), (("b", "a"), "slower"), (("a", "a"), "equal")):
        assert difference(paired, *pair)["verdict"].tolist() == [verdict] * 2
    apart = trials(*point("a", FAST), *point("b", SLOW))
    assert by_throughput(apart)["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("apart", "zone", "verdict"),
    [(0.0, 0.03, "equal"), (0.0, 0.005, "undecided"), (0.015, 0.03, "undecided")],
)
def test_points_are_equal_where_the_interval_lies_within_the_zone(
    apart: float, zone: float, verdict: str
) -> None:
    # Four launches with 1 %: half of the interval is 2.447 · 0.01 · √(2/4), 1.7 %.
    swing = 0.01 * np.array([-1.0, -1, 1, 1]) * (3 / 4) ** 0.5
    logs = np.full((2, 8), np.nan)
    logs[0, :4], logs[1, 4:] = swing + apart, swing
    frame = frame_of(logs, np.zeros(2))
    (row,) = difference(frame, "0", "1", of="samples_per_s", zone=zone).to_dict("records")
    assert (row["verdict"], row["zone"], row["level"]) == (verdict, zone, 0.05)


def test_the_question_of_a_study_gives_zone_and_level() -> None:
    question = Question(goal=GOALS["throughput"], indifference=0.1, max_launches=8).as_json()
    rows = [*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs")]
    grid = by_throughput(trials(*rows))
    asked = by_throughput(trials(*rows, question=question))
    assert (grid["zone"], grid["level"]) == (0.03, 0.05)
    assert asked["zone"] == 0.1
    assert asked["level"] == pytest.approx(0.0145, abs=1e-4)
    assert asked["ratio_low"] < grid["ratio_low"]


def test_where_points_are_alike_the_error_is_what_points_and_launches_leave() -> None:
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(0, 0.05, (1, 3)) + rng.normal(0, 0.01, (5, 3)))
    rows = [
        row
        for name, own in zip("abcde", rates, strict=True)
        for row in point(name, own.tolist(), sessions="pqr", error=0.005)
    ]
    found = by_throughput(trials(*rows))
    # What is left of the logarithms when each point and each launch has its own level.
    columns = np.concatenate(
        [np.kron(np.eye(5), np.ones((3, 1))), np.kron(np.ones((5, 1)), np.eye(3))], axis=1
    )
    logs = np.log(rates).ravel()
    left = logs - columns @ np.linalg.lstsq(columns, logs)[0]
    # Of its 8 degrees of freedom, 2 are given to the pair's own.
    pair = np.log(rates[0] / rates[1]).var(ddof=1)
    half = stats.t.ppf(0.975, 8) * ((6 * 2 * (left @ left / 8) + 2 * pair) / 8 / 3) ** 0.5
    assert found["method"] == "paired_pooled"
    assert np.log(found["ratio_high"] / found["ratio"]) == pytest.approx(half, rel=1e-3)


def test_a_point_with_one_launch_borrows_what_launches_add_from_the_others() -> None:
    others = [row for name in "cdef" for row in point(name, [99, 101], error=0.0)]
    found = by_throughput(
        trials(*point("a", [200], error=0.0), *point("b", [100], error=0.0), *others)
    )
    # Launches add 1.414 %, known with 4 degrees of freedom, and two launches differ by the root of
    # 2 of it.
    assert found["method"] == "pooled"
    assert found["ratio"] == pytest.approx(2)
    assert np.log(found["ratio_high"] / 2) == pytest.approx(2.776 * 0.01414 * 2**0.5, rel=1e-3)
    assert found["verdict"] == "faster"


def test_one_launch_that_measured_both_needs_only_what_it_does_not_add_to_both() -> None:
    shifts = np.array([90.0, 110.0, 100.0])
    rows = point("a", [101.0], sessions="p", error=0.001)
    rows += point("b", [100.0], sessions="p", error=0.001)
    for number, name in enumerate("cdef"):
        rates = shifts * (1 + 0.001 * np.roll([1, 0, -1], number))
        rows += point(name, rates.tolist(), sessions="pqr", error=0.001)
    found = by_throughput(trials(*rows))
    assert (found["method"], found["verdict"]) == ("paired_pooled", "faster")


def test_one_launch_each_is_unknown() -> None:
    once = point("b", [100], sessions="p")
    found = by_throughput(trials(*point("a", [200], sessions="p"), *once))
    assert found["method"] == "none"
    assert [found["verdict"], found["verdict_reason"]] == ["unknown", "one_launch_each"]
    assert found["ratio"] == pytest.approx(2)
    assert np.isnan(found["ratio_low"])
    # Where windows of others know their error, that of a single launch is not guessed.
    few = by_throughput(trials(*point("a", FAST, error=0.01), *once))
    assert few["verdict_reason"] == "too_few_launches"


@pytest.mark.slow
def test_a_launch_that_two_points_share_tells_no_less_than_one_of_its_own() -> None:
    rates = [100.0, 101, 102, 100, 101, 102, 100]
    many = point("a", rates, error=0.01)
    for session in ("own", "a0"):
        found = by_throughput(
            trials(*many, *(row | {"session": session} for row in point("b", [150.0], error=0.01)))
        )
        assert (found["method"], found["verdict"]) == ("pooled", "slower")


def test_what_was_not_measured_is_unknown() -> None:
    frame = trials(*point("a", FAST, step_p50_s=None), *point("b", SLOW))
    latency = difference(frame, "a", "b").set_index("of").loc["latency_s"]
    assert [latency["verdict"], latency["verdict_reason"]] == ["unknown", "not_measured"]
    assert np.isnan(latency["ratio"])
    assert latency["launches_a"] == 0


def test_other_rates_and_times_are_compared_where_asked_for() -> None:
    times = [{"step_p99_s": seconds, "step_p99_s_error": 0.01 * seconds} for seconds in (1.0, 1.01)]
    rows = [row | {"point_id": name} for name in "ab" for row in times]
    for of in ("step_p99_s", ["step_p99_s"]):
        (found,) = difference(trials(*rows, {"point_id": "a"}), "a", "b", of=of).to_dict("records")
        known = (found["of"], found["verdict"], found["launches_a"])
        assert known == ("step_p99_s", "undecided", 2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"of": ["latency_s", "mfu"]}, "can't be compared by 'mfu'; use one of samples_per_s, lat"),
        ({"of": []}, "launches can't be compared by ''; use one of"),
        ({"zone": 3}, "indifference zone 3 must be at least 0 and below 1"),
        ({"b": "c"}, "no ok trial of point 'c'"),
    ],
)
def test_what_can_not_be_compared_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        difference(trials(*point("a", FAST), *point("b", SLOW)), **{"a": "a", "b": "b"} | asked)


def test_environments_are_compared_each_for_itself() -> None:
    rows = [
        row
        for env_id, rates in (("here", (FAST, SLOW)), ("there", (SLOW, FAST)))
        for name, own in zip("ab", rates, strict=True)
        for row in point(name, own, env_id=env_id)
    ]
    frame = trials(*rows, *point("c", FAST, env_id="c"))
    found = difference(frame, "a", "b")
    ratios = found[found["of"] == "samples_per_s"].set_index("env_id")["ratio"]
    assert ratios["here"] == pytest.approx(1 / ratios["there"])
    with pytest.raises(SweepError, match="different environments"):
        difference(frame, "a", "c")


def test_each_number_of_hosts_is_compared_with_each_and_an_unknown_one_is_its_own() -> None:
    one = [row for name in "ab" for row in point(name, FAST, hosts=1)]
    two = [row for name in "ab" for row in point(name, [rate / 2 for rate in FAST], hosts=2)]
    found = difference(trials(*one, *two), "a", "b")
    rates = found[found["of"] == "samples_per_s"].set_index(["hosts_a", "hosts_b"])
    assert rates["ratio"].to_dict() == pytest.approx({(1, 1): 1, (1, 2): 2, (2, 1): 0.5, (2, 2): 1})
    assert rates["launches_a"].tolist() == [4] * 4
    unknown = difference(trials(*(row | {"hosts": None} for row in one)), "a", "b")
    assert unknown["hosts_a"].isna().all()
    assert unknown["launches_a"].tolist() == [4, 4]


def drawn(points: int, launches: int, together: bool, seed: int) -> pd.DataFrame:
    """A sweep whose points have errors of their own, and where some launches are missing."""
    rng = np.random.default_rng(seed)
    ((logs, _),) = sweeps(
        rng.uniform(0.001, 0.05, points).tolist(), launches=launches, together=together, count=1
    )
    logs[rng.random(logs.shape) < 0.2] = np.nan
    logs[[0, 1], [0, -1]] = rng.normal(0, 0.05, 2)
    return frame_of(logs, rng.uniform(0.001, 0.05, points))


@pytest.mark.parametrize(
    ("points", "launches", "together", "seed"),
    [(2, 1, True, 0), (5, 4, True, 1), (3, 2, False, 2), (4, 3, False, 3)],
)
def test_the_other_way_round_is_the_inverse_and_the_unit_of_time_changes_nothing(
    *, points: int, launches: int, together: bool, seed: int
) -> None:
    frame = drawn(points, launches, together, seed)
    scale = {"latency_s": 1e3, "latency_s_error": 1e3, "samples_per_s": 1e-3}
    scale["samples_per_s_error"] = 1e-3
    scaled = frame.assign(**{name: frame[name] * factor for name, factor in scale.items()})
    one, other, same = (
        difference(table, *pair)
        for table, pair in ((frame, ("0", "1")), (frame, ("1", "0")), (scaled, ("0", "1")))
    )
    np.testing.assert_allclose(one["ratio"], 1 / other["ratio"])
    np.testing.assert_allclose(one["ratio_low"], 1 / other["ratio_high"])
    swapped = one["verdict"].replace({"faster": "slower", "slower": "faster"})
    assert swapped.tolist() == other["verdict"].tolist()
    columns = ["ratio", "ratio_low", "ratio_high"]
    np.testing.assert_allclose(one[columns], same[columns], 1e-6)
    assert one["verdict"].tolist() == same["verdict"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("quiet", "together"), [(1, True), (30, True), (30, False)])
def test_quiet_points_beside_a_noisy_pair_make_its_difference_no_surer(
    *, quiet: int, together: bool
) -> None:
    # Windows of ±4 % and three launches that bear it out: up to 1.96 · 0.04 · √(2/3) = 6.4 % apart
    # is noise.
    swing = 0.04 * np.array([[-1.0, 0.0, 1.0], [1.0, -1.0, 0.0]]) + np.array([[0.03], [-0.03]])
    others = 0.005 * np.array([np.roll([-1.0, 0.0, 1.0], number) for number in range(quiet)])
    logs = np.concatenate([swing, others])
    if not together:
        logs = np.concatenate(
            [np.where(np.arange(len(logs))[:, None] == n, logs, np.nan) for n in range(len(logs))],
            1,
        )
    errors = np.where(np.arange(len(logs)) < 2, 0.04, 0.005)
    assert by_throughput(frame_of(logs, errors), "0", "1")["verdict"] not in ("faster", "slower")


DRIFTED = [canary("s", step_s, started_at=at) for at, step_s in enumerate((0.1, 0.15))]


def test_a_single_launch_is_told_from_others_beyond_the_drift_of_the_machine_only() -> None:
    others = [*point("b", SLOW, error=0.001), *point("c", FAST, error=0.001)]
    quiet, within, beyond = (
        by_throughput(trials(*point("a", [rate], error=0.001), *others, *watched))
        for rate, watched in ((140, []), (140, DRIFTED), (300, DRIFTED))
    )
    verdicts = [found["verdict"] for found in (quiet, within, beyond)]
    assert verdicts == ["faster", "undecided", "faster"]
    assert within["ratio_low"] == pytest.approx(quiet["ratio_low"] / 1.5)
    assert within["detectable_ratio"] > 1.5


def test_a_drift_is_in_launches_that_followed_each_other_unless_both_points_share_them() -> None:
    def found(slow: list[float], sessions: str | None, flags: list[str]) -> pd.Series[Any]:
        a = point("a", FAST, sessions=sessions, flags=flags)
        b = point("b", slow, sessions=sessions, flags=flags)
        return by_throughput(trials(*a, *b, *DRIFTED))

    apart, together = (found(SLOW, sessions, ["adjacent_launches"]) for sessions in (None, "pqrs"))
    assert (apart["verdict"], together["verdict"]) == ("undecided", "faster")
    without = by_throughput(trials(*point("a", FAST), *point("b", SLOW)))
    assert found(SLOW, None, [])["ratio_low"] == without["ratio_low"]
