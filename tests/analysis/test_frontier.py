from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import difference, dominance, frontier, objectives
from dtsweep.analysis.dominance import PointCosts, compare_all, compare_near
from dtsweep.analysis.objectives import Cost
from dtsweep.errors import SweepError
from tests.analysis.noise import frame_of, launches_in
from tests.frames import trials


def test_a_slower_step_with_less_throughput_is_dominated() -> None:
    values = ((0.3, 30), (0.2, 10), (0.1, 20))
    points = frontier(trials(*({"step_p50_s": s, "samples_per_s": rate} for s, rate in values)))
    assert points["latency_s"].tolist() == [0.1, 0.2, 0.3]
    assert points["on_frontier"].tolist() == [True, False, True]
    assert points["throughput_per_latency"].tolist() == pytest.approx([200, 50, 100])


def test_points_with_one_launch_are_open_unless_one_beats_the_others_in_what_is_set() -> None:
    near = [{"step_p50_s": 0.1 * at, "samples_per_s": 10.0 * at} for at in (1.0, 1.01)]
    alike = frontier(trials(*near), minimize=["latency_s", "workers"])
    assert alike["is_open"].tolist() == [True, True]
    apart = trials(*(row | {"workers": count} for count, row in enumerate([near[0]] * 2, 1)))
    points = frontier(apart, minimize=["latency_s", "workers"]).set_index("workers")
    assert not points.loc[1, "is_open"]
    assert frontier(apart, minimize=["workers"], maximize=[])["is_open"].sum() == 0


@pytest.mark.parametrize("size", [1_000_000_000, 1_001_000_000])
def test_an_exact_tie_in_what_was_measured_does_not_keep_a_slower_point(size: int) -> None:
    rows = [
        {"samples_per_s": rate, "step_p50_s": 8 / rate, "memory_peak_bytes": memory}
        | {"point_id": name, "session": f"{name}{launch}"}
        for name, rate, memory in (("slow", 100.0, size), ("fast", 200.0, 1_000_000_000))
        for launch in range(3)
    ]
    found = standings(rows, minimize=["latency_s", "memory_peak_bytes"], maximize=[])
    assert found == {"fast": "frontier", "slow": "dominated"}


def measured(
    latency_s: list[float], samples_per_s: list[float], *, noise: float, seed: int
) -> pd.DataFrame:
    """Three launches of points with these true values.

    Their windows say nothing of the noise between launches.
    """
    rng = np.random.default_rng(seed)
    shape = (len(latency_s), 3)
    latencies, rates = (
        np.array(true)[:, None] * np.exp(rng.normal(0, noise, shape))
        for true in (latency_s, samples_per_s)
    )
    frame = frame_of(np.log(rates), np.full(len(rates), noise / 10))
    return frame.assign(latency_s=latencies.ravel(), latency_s_error=latencies.ravel() * noise / 10)


def standing(frame: pd.DataFrame) -> list[str]:
    points = frontier(frame).set_index("point_id").sort_index()
    return points["standing"].tolist()


def test_a_point_that_is_worse_in_both_is_dominated_once_launches_can_tell() -> None:
    apart = measured([1.0, 1.5], [100, 60], noise=0.01, seed=0)
    near = measured([1.0, 1.001], [100, 99.9], noise=0.01, seed=2)
    assert standing(apart) == ["frontier", "dominated"]
    assert standing(near) == ["frontier", "undecided"]


def test_of_single_launches_only_clearly_worse_ones_leave_the_frontier() -> None:
    # Launches are assumed to differ by 3 %.
    values = ((0.1, 20), (0.105, 19), (0.13, 16))
    points = frontier(trials(*({"step_p50_s": s, "samples_per_s": rate} for s, rate in values)))
    assert points["standing"].tolist() == ["frontier", "undecided", "dominated"]
    assert points["on_frontier"].tolist() == [True, True, False]


def launch(point: str, session: int, rate: float, error: float = 0.01) -> dict[str, Any]:
    known = {"samples_per_s": rate, "samples_per_s_error": rate * error, "step_p50_s": 4 / rate}
    return {"point_id": point, "session": str(session), "micro_batch": ord(point[0]), **known} | {
        "step_p50_s_error": 4 / rate * error
    }


def test_a_single_launch_takes_no_point_with_several_off_the_frontier() -> None:
    rows = [launch("a", number, rate) for number, rate in enumerate((100, 101, 102))]
    assert standing(trials(*rows, launch("b", 9, 103.5, 0.3))) == ["undecided", "frontier"]


def shared(*pairs: tuple[str, str], speeds: list[float]) -> pd.DataFrame:
    """Sessions of two points each, of which the first is 1 % faster; sessions differ more."""
    return trials(
        *(
            launch(point, session, rate * factor)
            for session, (pair, rate) in enumerate(zip(pairs, speeds, strict=True))
            for point, factor in zip(pair, (1.01, 1.0), strict=True)
        )
    )


def test_where_each_point_is_beaten_by_another_one_all_stay() -> None:
    once = standing(shared(("a", "b"), ("c", "a"), speeds=[100, 80]))
    assert set(once) & {"frontier", "undecided"}
    circle = [("a", "b"), ("b", "c"), ("c", "a")] * 2
    frame = shared(*circle, speeds=[100, 130, 70, 101, 131, 71])
    # Also next to one that all of the circle beat.
    beaten = [launch("e", number, 9 + number / 10) for number in (20, 21, 22)]
    assert standing(pd.concat([frame, trials(*beaten)])) == ["undecided"] * 3 + ["dominated"]


@pytest.mark.slow
def test_a_single_launch_of_a_quicker_session_beats_only_what_it_measured_too() -> None:
    # c beats a and a beats b, in the launch that both share; b beats c by the means alone, which
    # launches don't show. Points of quicker steps say how little points of a launch differ, and
    # how far launches do.
    rng, speeds = np.random.default_rng(0), (1.0, 1.5)
    quick = [
        launch(f"d{number}", session, (9 - number / 2) * speed * noise, 1e-4)
        | {"step_p50_s": step_s / speed / noise, "step_p50_s_error": 1e-4 * step_s / speed}
        for number, step_s in enumerate(0.001 * np.arange(1, 13))
        for session, (speed, noise) in enumerate(
            zip(speeds, np.exp(rng.normal(0, 1e-3, 2)), strict=True)
        )
    ]
    circle = [("a", 0, 100), ("a", 1, 150), ("b", 1, 135), ("c", 0, 110)]
    rows = [launch(point, session, rate, 1e-4) for point, session, rate in circle]
    found = frontier(trials(*quick, *rows)).set_index("point_id")["standing"]
    assert found[["a", "b", "c"]].tolist() == ["dominated", "dominated", "undecided"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_dominated_point_is_slower_in_both_by_some_verdict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = measured(
        rng.uniform(1, 1.2, 3).tolist(), rng.uniform(90, 110, 3).tolist(), noise=0.02, seed=seed
    )
    points = frontier(frame).set_index("point_id")
    for point in points.index:
        found = [difference(frame, point, other) for other in points.index.drop(point)]
        worse = ["slower", "slower"] in [each["verdict"].tolist() for each in found]
        assert (points.loc[point, "standing"] == "dominated") == worse
        # By its own estimates, which are of logarithms: the means of two points that nearly agree
        # may say otherwise.
        is_beaten = any(each["ratio"][0] < 1 < each["ratio"][1] for each in found)
        assert (points.loc[point, "standing"] == "frontier") == (not is_beaten)
    assert points["on_frontier"].any()


def test_what_a_launch_adds_to_all_its_points_makes_none_of_them_doubtful() -> None:
    shifts = np.array([0.0, 0.3, -0.3])
    logs = (
        np.log([[100.0], [90.0], [80.0], [70.0]])
        + shifts
        + 0.001 * np.array([[0, 1, -1]] * 2 + [[1, 0, -1]] * 2)
    )
    points = frontier(frame_of(logs, np.full(4, 0.001)))
    assert points["standing"].tolist() == ["frontier"] + ["dominated"] * 3


def test_each_semantics_and_each_environment_has_a_frontier_of_its_own() -> None:
    stale = {"semantics": "stale", "step_p50_s": 0.1, "samples_per_s": 99}
    found = frontier(trials(stale, {"step_p50_s": 0.2, "samples_per_s": 10}))
    # The strongest first.
    assert found["semantics"].tolist() == ["exact", "stale"]
    rows = [
        {"point_id": "a", "env_id": name, "step_p50_s": 2 / rate, "samples_per_s": rate}
        for name, rate in (("slow", 10), ("fast", 20), (None, 5))
    ]
    environments = frontier(trials(*rows))
    assert environments["launches"].tolist() == [1, 1, 1]
    assert found["on_frontier"].all()
    assert environments["on_frontier"].all()


def test_repeats_are_averaged_with_the_interval_over_launches() -> None:
    times = [0.1, 0.2, 0.3]
    rows = [
        {"point_id": "a", "repeat": n, "step_p50_s": t, "samples_per_s": 1 / t}
        for n, t in enumerate(times)
    ]
    ((_, point),) = frontier(trials(*rows, memory_peak_bytes=7)).iterrows()
    assert point["launches"] == 3
    assert point["samples_per_s"] == pytest.approx((10 + 5 + 10 / 3) / 3)
    # Mean 0.2, standard deviation half of it, Student's t 4.303 with 2 degrees of freedom.
    factor = np.exp(4.303 * 0.5 / 3**0.5)
    assert point["latency_s_low"] == pytest.approx(0.2 / factor, abs=1e-4)
    assert point["latency_s_high"] == pytest.approx(0.2 * factor, abs=1e-4)


def test_launches_that_measured_only_one_of_two_points_do_not_bend_how_they_stand() -> None:
    # Side by side the second point is 5 % faster; three more launches of the first alone were on a
    # faster machine.
    both = [
        {"point_id": p, "session": f"s{n}", "samples_per_s": r * (1 + n / 500)}
        for n in range(3)
        for p, r in (("a", 100), ("b", 105))
    ]
    later = [{"point_id": "a", "session": f"t{n}", "samples_per_s": 140 + n / 10} for n in range(3)]
    rows = [row | {"step_p50_s": 10 / row["samples_per_s"]} for row in (*both, *later)]
    points = frontier(trials(*rows)).set_index("point_id")
    assert points["standing"].to_dict() == {"a": "dominated", "b": "frontier"}


def test_each_model_has_a_frontier_of_its_own() -> None:
    small = {"model_digest": "s", "flops_per_sample": 1e6, "workload_layers": 1}
    large = {"model_digest": "a", "flops_per_sample": 2e6, "workload_layers": 2}
    rows = [
        {**small, "step_p50_s": 0.1, "samples_per_s": 40},
        {**large, "step_p50_s": 0.2, "samples_per_s": 20},
        {**large, "step_p50_s": 0.3, "samples_per_s": 10},
    ]
    apart = frontier(trials(*rows))
    assert apart["model_digest"].tolist() == ["s", "a", "a"]
    assert apart["on_frontier"].tolist() == [True, True, False]
    unknown = frontier(trials(*({**row, "model_digest": None} for row in rows)))
    assert unknown["on_frontier"].tolist() == [True, False, False]


def point(name: str, **fields: Any) -> dict[str, Any]:
    return {"point_id": name, "step_p50_s": 1.0, "samples_per_s": 10.0} | fields


def standings(rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    return frontier(trials(*rows), **options).set_index("point_id")["standing"].to_dict()


def test_workers_as_an_objective_keep_the_smaller_world_on_the_frontier() -> None:
    rows = [
        point("a", workers=4, step_p50_s=0.5, samples_per_s=40.0),
        point("b", workers=1, step_p50_s=1.0, samples_per_s=10.0),
        point("c", workers=4, step_p50_s=0.6, samples_per_s=30.0),
    ]
    alone = {"a": "frontier", "b": "dominated", "c": "dominated"}
    assert standings(rows) == alone
    assert standings(rows, minimize=["latency_s", "workers"]) == alone | {"b": "frontier"}


def test_what_is_set_needs_no_test_and_what_is_measured_does() -> None:
    rows = [
        launch(name, number, rate + number / 10) | {"workers": 2}
        for name, rate in (("a", 100), ("b", 90))
        for number in range(4)
    ]
    expected = {"a": "frontier", "b": "dominated"}
    assert standings(rows, minimize=["latency_s", "workers"]) == expected
    only_set = [point("a", workers=1, micro_batch=8), point("b", workers=2, micro_batch=4)]
    assert standings(only_set, minimize=["workers"], maximize=["micro_batch"]) == expected
    # A share may be zero.
    shares = [point("a", wait_share=0.0), point("b", wait_share=0.2, samples_per_s=5.0)]
    assert standings(shares, minimize=["wait_share"]) == expected


def test_a_condition_leaves_points_out_and_what_was_not_measured_stands_nowhere() -> None:
    rows = [
        point("a", step_p99_s=0.1, samples_per_s=10.0),
        point("b", step_p99_s=0.9, samples_per_s=99.0),
        point("c", step_p99_s=None, samples_per_s=99.0),
    ]
    points = frontier(trials(*rows), where="step_p99_s <= 200ms").set_index("point_id")
    assert points["meets"].isna().tolist() == [False, False, True]
    assert points["meets"].tolist()[:2] == [True, False]
    assert points.index[points["on_frontier"]].tolist() == ["a"]
    assert points["standing"].isna().to_dict() == {"a": False, "b": True, "c": True}
    asked = frontier(trials(*rows), minimize=["step_p99_s"]).set_index("point_id")
    assert asked["standing"].isna().to_dict() == {"a": False, "b": False, "c": True}


@pytest.mark.slow
def test_the_knee_is_where_more_throughput_begins_to_cost_most_latency() -> None:
    values = (("a", 0.1, 100.0), ("b", 0.12, 400.0), ("c", 0.5, 450.0))
    single = [point(name, step_p50_s=step_s, samples_per_s=rate) for name, step_s, rate in values]
    points = frontier(trials(*single)).set_index("point_id")
    assert points["knee"].to_dict() == {"a": False, "b": True, "c": False}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minimize": ["latency"]}, "did you mean 'latency_s'"),
        ({"minimize": ["sync"]}, "'sync' is not a column of numbers"),
        ({"minimize": ["samples_per_s"]}, "is given twice"),
        ({"minimize": [], "maximize": []}, "needs an objective"),
        ({"where": "latency < 1"}, "did you mean 'latency_s'"),
    ],
)
def test_objectives_that_can_not_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        frontier(trials(point("a")), **options)


@pytest.mark.slow
def test_a_frontier_has_one_kind_of_stale_updates_and_all_modes_of_exact_ones() -> None:
    slow = {"step_p50_s": 9.0, "samples_per_s": 1.0}
    rows = [
        point("a", sync="hogwild", semantics="stale"),
        point("b", sync="parameter_server", semantics="stale", **slow),
        point("c", sync="of_a_package_elsewhere", semantics="stale", **slow),
        point("d", sync="ring"),
        point("e", sync="ddp", **slow),
    ]
    assert standings(rows) == dict.fromkeys("abcd", "frontier") | {"e": "dominated"}
    kinds = frontier(trials(*rows)).set_index("point_id")["update_kind"]
    assert kinds.to_dict() == {
        **{"a": "lock-free", "b": "parameter server"},
        **{"c": "", "d": "", "e": ""},
    }


# Dominance without all pairs

RNG = np.random.default_rng(3)


def rivals_of(
    points: int, launches: int, *, noise: float, missing: float = 0.0, single: float = 0.0
) -> PointCosts:
    """Draw points whose two costs are independent, so that few are near the frontier."""

    def quantity() -> Any:
        logs = RNG.normal(0, 0.5, (points, 1)) + RNG.normal(0, noise, (points, launches))
        return np.where(there, logs, np.nan)

    there = RNG.random((points, launches)) >= missing
    there[RNG.random(points) < single, 1:] = False
    there[:, 0] |= ~there.any(axis=1)
    within = np.full(points, noise**2)
    return PointCosts(tuple(Cost(launches_in(quantity(), within)) for _ in range(2)))


@pytest.mark.parametrize(
    ("launches", "missing", "single", "noise"),
    [
        (3, 0.0, 0.0, 0.1),
        (1, 0.0, 0.0, 0.4),
        (4, 0.4, 0.0, 0.01),
        (3, 0.0, 0.5, 0.1),
        (2, 0.0, 0.97, 0.4),
    ],
)
def test_points_stand_as_if_each_were_compared_with_each(
    launches: int, missing: float, single: float, noise: float
) -> None:
    for _ in range(5):
        rivals = rivals_of(80, launches, noise=noise, missing=missing, single=single)
        numbers = RNG.permutation(80)[:70]
        few, many = compare_all(rivals, numbers), compare_near(rivals, numbers)
        assert few.tolist() == many.tolist()


@pytest.mark.slow
def test_points_that_beat_each_other_in_a_circle_are_none_of_them_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Points that share some launches; what is told at all is told by far.
    monkeypatch.setattr(dominance, "_FAR", 1.0)
    numbers = np.arange(40)
    for _ in range(12):
        rivals = rivals_of(40, 4, noise=0.3, missing=0.6)
        assert compare_all(rivals, numbers).tolist() == compare_near(rivals, numbers).tolist()


@pytest.mark.parametrize("launches", [1, 3])
def test_the_work_of_a_frontier_grows_with_its_points_alone(
    monkeypatch: pytest.MonkeyPatch, launches: int
) -> None:
    pairs, compared = [], objectives.contrasts

    def counting(found: Any, first: Any, second: Any) -> Any:
        pairs.append(len(first) * len(second))
        return compared(found, first, second)

    monkeypatch.setattr(objectives, "contrasts", counting)
    rivals = rivals_of(3000, launches, noise=0.01)
    compare_near(rivals, np.arange(3000))
    assert sum(pairs) < 0.2 * 3000**2
    # Blocks: none takes gigabytes.
    assert max(pairs) <= 1 << 21
