from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dtsweep.analysis import difference
from dtsweep.errors import SweepError
from tests.frames import trials

FAST, SLOW = [110.0, 121.0, 108.0, 118.0], [100.0, 111.0, 97.0, 109.0]


def point(name: str, rates: list[float], *, sessions: str | None = None, **fields: Any) -> list[dict[str, Any]]:
    """A point with so many samples/s in each launch; the launches are its own unless sessions are given."""
    named = sessions or [f"{name}{number}" for number in range(len(rates))]
    return [
        {"point_id": name, "session": session, "samples_per_s": rate, "step_p50_s": 10 / rate, **fields}
        for session, rate in zip(named, rates, strict=True)
    ]


def by_throughput(frame: pd.DataFrame, a: str = "a", b: str = "b") -> pd.Series[Any]:
    return difference(frame, a, b).set_index("of").loc["samples_per_s"]


def test_launches_of_their_own_are_compared_by_welch_on_logarithms() -> None:
    found = by_throughput(trials(*point("a", FAST), *point("b", SLOW[:3])))
    expected = stats.ttest_ind(np.log(FAST), np.log(SLOW[:3]), equal_var=False).confidence_interval()
    assert found["method"] == "welch"
    assert np.log(found[["ratio_low", "ratio_high"]].astype(float)).tolist() == pytest.approx([*expected])
    assert [found["launches_a"], found["launches_b"]] == [4, 3]


def test_points_of_the_same_launches_are_compared_launch_by_launch() -> None:
    found = by_throughput(trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs")))
    expected = stats.ttest_rel(np.log(FAST), np.log(SLOW)).confidence_interval()
    assert found["method"] == "paired"
    assert np.log(found[["ratio_low", "ratio_high"]].astype(float)).tolist() == pytest.approx([*expected])


def test_pairs_see_a_difference_that_launches_would_hide() -> None:
    paired = trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs"))
    apart = trials(*point("a", FAST), *point("b", SLOW))
    assert by_throughput(paired)["verdict"] == "faster"
    assert by_throughput(apart)["verdict"] == "not distinguishable"


def test_the_verdict_is_on_the_first_point_in_both_quantities() -> None:
    frame = trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs"))
    assert difference(frame, "a", "b").set_index("of")["verdict"].to_dict() == {
        "samples_per_s": "faster",
        "latency_s": "faster",
    }
    assert difference(frame, "b", "a")["verdict"].tolist() == ["slower", "slower"]
    assert difference(frame, "a", "a")["verdict"].tolist() == ["not distinguishable"] * 2


def test_points_of_the_same_launches_lend_each_other_their_spread() -> None:
    rng = np.random.default_rng(0)
    rates = np.exp(rng.normal(0, 0.05, (1, 3)) + rng.normal(0, 0.01, (5, 3)))
    rows = [row for name, own in zip("abcde", rates, strict=True) for row in point(name, own.tolist(), sessions="pqr")]
    found = by_throughput(trials(*rows))
    # What is left of the logarithms when each point and each launch has its own level.
    columns = np.concatenate([np.kron(np.eye(5), np.ones((3, 1))), np.kron(np.ones((5, 1)), np.eye(3))], axis=1)
    logs = np.log(rates).ravel()
    left = logs - columns @ np.linalg.lstsq(columns, logs)[0]
    half = stats.t.ppf(0.975, 8) * (left @ left / 8 * 2 / 3) ** 0.5
    assert found["method"] == "paired, pooled"
    assert np.log(found["ratio_high"] / found["ratio"]) == pytest.approx(half)


def test_a_point_with_one_launch_borrows_the_spread_of_the_others() -> None:
    others = [row for name in "cdef" for row in point(name, [99, 101])]
    found = by_throughput(trials(*point("a", [200]), *point("b", [100]), *others))
    # The spread of launches is 1.414 % with 4 degrees of freedom, and two launches differ by the root of 2 of it.
    assert found["method"] == "pooled"
    assert found["ratio"] == pytest.approx(2)
    assert np.log(found["ratio_high"] / 2) == pytest.approx(2.776 * 0.01414 * 2**0.5, rel=1e-3)
    assert found["verdict"] == "faster"


def test_one_launch_each_is_not_distinguishable_from_launch_noise() -> None:
    found = by_throughput(trials(*point("a", [200], sessions="p"), *point("b", [100], sessions="p")))
    assert found["method"] == "none"
    assert found["verdict"] == "not distinguishable"
    assert found["ratio"] == pytest.approx(2)
    assert np.isnan(found["ratio_low"])


def test_what_was_not_measured_is_not_distinguishable() -> None:
    frame = trials(*point("a", FAST, step_p50_s=None), *point("b", SLOW))
    latency = difference(frame, "a", "b").set_index("of").loc["latency_s"]
    assert latency["verdict"] == "not distinguishable"
    assert np.isnan(latency["ratio"])


def test_environments_are_compared_each_for_itself() -> None:
    here = [*point("a", FAST, env_id="here"), *point("b", SLOW, env_id="here")]
    there = [*point("a", SLOW, env_id="there"), *point("b", FAST, env_id="there"), *point("c", FAST, env_id="c")]
    found = difference(trials(*here, *there), "a", "b")
    ratios = found[found["of"] == "samples_per_s"].set_index("env_id")["ratio"]
    assert ratios["here"] == pytest.approx(1 / ratios["there"])
    with pytest.raises(SweepError, match="different environments"):
        difference(trials(*here, *there), "a", "c")


def test_canaries_and_failed_trials_are_no_launches() -> None:
    noise = [*point("a", [1.0], role="canary"), *point("a", [1.0], status="nan", trial_id="again")]
    assert by_throughput(trials(*point("a", FAST), *noise, *point("b", SLOW)))["launches_a"] == 4


def test_a_point_that_was_not_measured_is_refused_by_name() -> None:
    with pytest.raises(SweepError, match="no ok trial of point 'c'"):
        difference(trials(*point("a", FAST), *point("b", SLOW)), "a", "c")
