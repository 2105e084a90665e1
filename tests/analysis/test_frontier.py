from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.analysis import frontier, on_frontier
from tests.frames import trials

COSTS = st.integers(1, 3).flatmap(
    lambda objectives: st.lists(st.tuples(*[st.integers(0, 4)] * objectives), min_size=1, max_size=12)
)


@given(COSTS)
def test_the_frontier_is_what_its_definition_says(rows: list[tuple[int, ...]]) -> None:
    def dominates(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

    expected = [not any(dominates(other, row) for other in rows) for row in rows]
    assert on_frontier(np.array(rows, dtype=np.float64)).tolist() == expected


def test_equal_rows_dont_dominate_each_other() -> None:
    assert on_frontier(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 2.0]])).tolist() == [True, True, False]


def test_no_rows_have_an_empty_frontier() -> None:
    assert on_frontier(np.empty((0, 2))).tolist() == []


def test_a_slower_step_with_less_throughput_is_dominated() -> None:
    points = frontier(
        trials(
            {"step_p50_s": 0.3, "samples_per_s": 30},
            {"step_p50_s": 0.2, "samples_per_s": 10},
            {"step_p50_s": 0.1, "samples_per_s": 20},
        )
    )
    assert points["latency_s"].tolist() == [0.1, 0.2, 0.3]
    assert points["on_frontier"].tolist() == [True, False, True]


def test_each_semantics_has_its_own_frontier_the_strongest_first() -> None:
    points = frontier(
        trials(
            {"semantics": "stale", "step_p50_s": 0.1, "samples_per_s": 99},
            {"semantics": "exact", "step_p50_s": 0.2, "samples_per_s": 10},
        )
    )
    assert points["semantics"].tolist() == ["exact", "stale"]
    assert points["on_frontier"].all()


def test_environments_are_never_compared() -> None:
    points = frontier(
        trials(
            {"point_id": "a", "env_id": "slow", "step_p50_s": 0.2, "samples_per_s": 10},
            {"point_id": "a", "env_id": "fast", "step_p50_s": 0.1, "samples_per_s": 20},
            {"point_id": "a", "env_id": None, "step_p50_s": 0.3, "samples_per_s": 5},
        )
    )
    assert points["launches"].tolist() == [1, 1, 1]
    assert points["on_frontier"].all()


def test_latency_of_local_updates_is_the_mean_step() -> None:
    row = {"semantics": "local", "step_p50_s": 0.1, "step_mean_s": 0.2, "samples_per_s": 100}
    assert frontier(trials(row)).iloc[0]["latency_s"] == 0.2


def test_repeats_are_averaged_with_the_interval_over_launches() -> None:
    times = [0.1, 0.2, 0.3]
    rows = [{"point_id": "a", "repeat": n, "step_p50_s": t, "samples_per_s": 1 / t} for n, t in enumerate(times)]
    ((_, point),) = frontier(trials(*rows, step_p50_s_low=0.0, memory_peak_bytes=7)).iterrows()
    assert point["launches"] == 3
    assert point["samples_per_s"] == pytest.approx((10 + 5 + 10 / 3) / 3)
    # Mean 0.2, standard deviation 0.1 of 3 launches, Student's t 4.303 with 2 degrees of freedom.
    assert point["latency_s_low"] == pytest.approx(0.2 - 4.303 * 0.1 / 3**0.5, abs=1e-4)
    assert point["latency_s_high"] == pytest.approx(0.2 + 4.303 * 0.1 / 3**0.5, abs=1e-4)


def test_one_launch_keeps_the_interval_within_it() -> None:
    point = frontier(trials({"step_p50_s": 0.2, "step_p50_s_low": 0.1, "step_p50_s_high": 0.4})).iloc[0]
    assert [point["latency_s_low"], point["latency_s_high"]] == [0.1, 0.4]


def test_trials_that_are_not_ok_are_no_points() -> None:
    points = frontier(trials({"status": "oom_device"}, {"status": "skipped"}))
    assert points.empty
    assert "on_frontier" in points


def test_a_point_without_throughput_is_on_no_frontier() -> None:
    points = frontier(trials({"step_p50_s": 0.1}, {"step_p50_s": 0.2, "samples_per_s": 1}))
    assert points["on_frontier"].tolist() == [False, True]
