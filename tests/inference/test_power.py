from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dtsweep.analysis import difference
from dtsweep.inference.contrasts import contrasts
from dtsweep.inference.power import noncentrality, power_of
from dtsweep.inference.spread import Launches
from tests.analysis.noise import ALIKE, launches_in, significant, sweeps
from tests.analysis.test_difference import FAST, SLOW, by_throughput, point
from tests.frames import trials
from tests.rates import chance

FIRST, SECOND = np.array([0]), np.array([1])


def more_needed(launches: Launches, *, apart: float) -> float:
    """More launches for a pair whose estimate is made to be `apart`; infinite above the cap."""
    found = contrasts(launches, FIRST, SECOND)
    shifted = (
        launches.means + (apart - found.estimate[0, 0]) * np.eye(len(launches.means))[0][:, None]
    )
    moved = Launches(launches.points, shifted, launches.within_variance)
    more = power_of(contrasts(moved, FIRST, SECOND), moved, 0, 1).more_launches
    return np.inf if more is None else more


def test_the_power_is_that_of_students_t() -> None:
    degrees = np.array([1.0, 2.0, 5.5, 40.0])
    limit = stats.t.ppf(0.975, degrees)
    assert stats.nct.sf(limit, degrees, noncentrality(degrees)).tolist() == pytest.approx(
        [0.8] * 4, abs=1e-4
    )


PAIRS = [(10, 0.035), (10, 0.015), (2, 0.035)]
"""Points of a sweep, and by how much the first two are apart."""


def share_told(points: int, apart: float, *, together: bool, count: int) -> float:
    """Share of sweeps that tell a pair with as many more launches as are said to be needed."""
    windows, drawn = ALIKE[:points], {"together": together, "added": 0.01, "count": count}
    found = [launches_in(*sweep) for sweep in sweeps(windows, launches=3, **drawn)]
    more = int(np.median([more_needed(launches, apart=apart) for launches in found]))
    assert more >= 2
    return significant(windows, launches=3 + more, apart=apart, **drawn)


def test_so_many_more_launches_tell_four_times_in_five() -> None:
    """`benchmarks/coverage.py` has the rates of many sweeps, and of other pairs."""
    points, apart = PAIRS[-1]
    share = share_told(points, apart, together=False, count=80)
    assert abs(share - 0.8) <= chance(0.8, 80)


def test_what_is_told_needs_no_more_launches() -> None:
    found = by_throughput(
        trials(*point("a", FAST, sessions="pqrs"), *point("b", SLOW, sessions="pqrs"))
    )
    assert found["more_launches"] == 0
    assert 1 < found["detectable_ratio"] < found["ratio"]


def test_what_is_not_told_needs_more_the_nearer_the_points_are() -> None:
    near, nearer, nearest = (
        trials(*point("a", [rate * by for rate in SLOW]), *point("b", SLOW))
        for by in (1.1, 1.05, 1.001)
    )
    needed = [
        difference(frame, "a", "b", of="samples_per_s", zone=0).iloc[0]
        for frame in (near, nearer, nearest)
    ]
    assert 1 < needed[0]["more_launches"] < needed[1]["more_launches"]
    assert needed[0]["detectable_ratio"] == pytest.approx(needed[2]["detectable_ratio"])
    assert needed[2]["more_launches"] is pd.NA
    assert needed[2]["more_launches_reason"] == "over_100_launches"
    # The nearer they are, the fewer launches show that they are equal within a zone.
    assert by_throughput(nearer)["more_launches"] == needed[1]["more_launches"]
    assert 1 < by_throughput(nearest)["more_launches"] <= 100
    same = trials(*point("a", FAST[:1] * 3), *point("b", FAST[:1] * 3))
    assert (by_throughput(same)["verdict"], by_throughput(same)["more_launches"]) == ("equal", 0)


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        ({"a": [200.0], "b": [100.0]}, "one_launch_each"),
        ({"a": FAST, "b": [None]}, "not_measured"),
    ],
)
def test_without_a_spread_it_is_unknown_how_many_more_are_needed(
    rates: dict[str, Any], reason: str
) -> None:
    rows = [
        {"point_id": name, "session": f"{name}{n}", "samples_per_s": rate, "step_p50_s": 1.0}
        for name, own in rates.items()
        for n, rate in enumerate(own)
    ]
    found = difference(trials(*rows), "a", "b", of="samples_per_s")
    assert found["more_launches"].isna().all()
    assert found["detectable_ratio"].isna().all()
    assert found["more_launches_reason"].iloc[0] == reason
