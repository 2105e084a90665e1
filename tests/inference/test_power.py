from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dtsweep.analysis import difference
from dtsweep.inference.power import noncentrality
from tests.analysis.test_difference import FAST, SLOW, by_throughput, point
from tests.frames import trials


def test_the_power_is_that_of_students_t() -> None:
    degrees = np.array([1.0, 2.0, 5.5, 40.0])
    limit = stats.t.ppf(0.975, degrees)
    assert stats.nct.sf(limit, degrees, noncentrality(degrees)).tolist() == pytest.approx(
        [0.8] * 4, abs=1e-4
    )


def test_what_is_told_is_above_the_least_that_would_be() -> None:
    found = by_throughput(
        trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs"))
    )
    assert 1 < found["detectable_ratio"] < found["ratio"]


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ({"a": [200.0], "b": [100.0]}, "one_launch_each"),
        ({"a": FAST, "b": [None]}, "not_measured"),
    ],
)
def test_without_a_spread_it_is_unknown_what_would_be_found(
    rates: dict[str, Any], reason: str
) -> None:
    rows = [
        {"point_id": name, "session": f"{name}{n}", "samples_per_s": rate, "step_p50_s": 1.0}
        for name, own in rates.items()
        for n, rate in enumerate(own)
    ]
    found = difference(trials(*rows), "a", "b", of="samples_per_s")
    assert found["detectable_ratio"].isna().all()
    assert found["verdict_reason"].iloc[0] == reason
