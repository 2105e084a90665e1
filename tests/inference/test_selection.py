"""Selection of a point by made-up differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtsweep.inference.selection import Candidates, Differences, Selection, is_futile, select

ZONE, LEVEL = 3.0, 0.05
"""Costs are whole numbers here, and their errors normal: ±1.96 of them is an interval."""


def selected(
    costs: list[float], *, error: float | list[list[float]] = 1.0, **properties: Any
) -> Selection:
    """Select among points of these costs; each difference has this standard error."""
    count = len(costs)
    estimate = np.subtract.outer(costs, costs).astype("float64")
    shape = np.ones((count, count))
    differences = Differences(
        estimate=estimate,
        error=np.asarray(error) * shape,
        degrees=np.inf * shape,
        drift=properties.pop("drift", 0.0) * shape,
        is_tested=shape == 1,
    )
    is_met = np.array(properties.get("is_met", [True] * count))
    candidates = Candidates(
        counts=np.array(properties.get("counts", [4] * count)),
        is_met=is_met,
        is_likely=is_met,
        prices=np.array(properties.get("prices", [[1.0, 1.0]] * count)),
    )
    return select(differences, candidates, zone=ZONE, level=LEVEL)


def test_the_best_beats_all_others() -> None:
    found = selected([0.0, 5.0, 9.0])
    assert (found.answer, found.chosen, found.is_decided) == ("best", 0, True)
    assert found.contenders.tolist() == [0]
    # One-sided limits at 5 %: 1.645 errors.
    assert found.shortfall.tolist() == pytest.approx([0, -5 + 1.645, -9 + 1.645], abs=1e-3)


def test_of_equal_points_the_cheapest_is_chosen() -> None:
    prices = [[4.0, 1.0], [2.0, 9.0], [2.0, 5.0], [1.0, 1.0]]
    found = selected([0.0, 0.5, 0.6, 20.0], error=0.5, prices=prices)
    assert (found.answer, found.chosen, found.is_decided) == ("equal", 2, True)
    assert found.equal.tolist() == found.contenders.tolist() == [0, 1, 2]


def test_neither_better_nor_equal_is_undecided() -> None:
    found = selected([0.0, 1.0], error=4.0)
    assert (found.answer, found.chosen, found.is_decided) == ("undecided", 0, False)
    assert (found.contenders.tolist(), found.equal.size) == ([0, 1], 0)
    # It costs 1 less, and may cost -1 + 1.645 · 4 more, which is above 3.
    assert found.shortfall[1] == pytest.approx(5.58, abs=0.01)
    # A difference of 1 with an error of 4 is shrunk to 0. 1.645 errors have to be 3, with 80 %
    # probability: 4 · (((1.645 + 0.842) · 4 / 3)² - 1) = 39.97.
    assert found.more_launches.tolist() == [0, 40]
    # Two others: 2.5 % one-sided each, 1.96 errors. 4 · (((1.96 + 0.842) · 4 / 3)² - 1) = 51.8.
    assert selected([0.0, 0.0, 2.0], error=4.0).more_launches.tolist() == [0, 52, 52]


def test_a_point_that_is_not_worse_than_the_zone_is_equal_though_it_is_not_the_best() -> None:
    found = selected([0.0, 2.0], error=2.0)
    # At most -2 + 1.645 · 2 worse; the other may be 2 + 1.645 · 2 worse.
    assert (found.answer, found.equal.tolist(), found.is_decided) == ("equal", [0], True)
    assert found.contenders.tolist() == [0, 1]


def test_a_drift_keeps_points_from_being_separated() -> None:
    assert selected([0.0, 5.0]).answer == "best"
    assert selected([0.0, 5.0], drift=4.0).answer == "equal"
    assert np.isinf(selected([0.0, 3.5], drift=7.0).more_launches[1])


def test_one_launch_each_decides_nothing() -> None:
    found = selected([0.0, 50.0], counts=[1, 1])
    assert (found.answer, found.chosen, found.is_decided) == ("single_launch", 0, False)


def test_a_point_is_decided_only_if_it_meets_the_condition() -> None:
    alone = selected([1.0])
    assert (alone.answer, alone.chosen, alone.is_decided) == ("only_candidate", 0, True)
    assert not selected([1.0], is_met=[False]).is_decided
    found = selected([0.0, 9.0, 20.0], is_met=[False, True, True])
    assert (found.answer, found.chosen, found.is_decided) == ("undecided", 1, False)
    assert found.contenders.tolist() == [0, 1]


def test_a_cheaper_point_that_may_be_equal_is_launched_again() -> None:
    # The second point is worse, with an error of 3: it may be equal, and it is cheaper.
    error = [[0.1, 3.0, 0.1], [3.0, 0.1, 3.0], [0.1, 3.0, 0.1]]
    prices = [[4.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    found = selected([0.0, 4.5, 0.0], error=error, prices=prices)
    assert (found.answer, found.chosen, found.is_decided) == ("equal", 2, False)
    # It has to be within 3 of the chosen one, and is 4.5 worse, shrunk to 4.5 · (1 - 4 / 9) = 2.5,
    # which separates: 4 · (((1.96 + 0.842) · 3 / 2.5)² - 1) = 41.2.
    assert found.more_launches.tolist() == [0, 42, 0]


@pytest.mark.parametrize(
    ("more", "launches", "sigma", "is_given_up"),
    [
        (11, 3, 5.0, True),
        (np.inf, 3, 5.0, True),
        # Twice the five launches that are left; noise of 1.5 zones; two launches show too little.
        (10, 3, 5.0, False),
        (11, 3, 4.5, False),
        (99, 2, 5.0, False),
    ],
)
def test_a_question_is_given_up_where_noise_is_large_and_launches_are_far_too_few(
    more: float, launches: int, sigma: float, *, is_given_up: bool
) -> None:
    found = is_futile(more, launches=launches, max_launches=8, sigma=sigma, zone=ZONE)
    assert found == is_given_up


def test_numbers_among_more_points_are_those_of_the_candidates() -> None:
    found = selected([0.0, 5.0]).among(np.array([3, 1]), 5)
    assert (found.chosen, found.contenders.tolist()) == (3, [3])
    assert np.isnan(found.shortfall[[0, 2, 4]]).all()
    assert found.more_launches.tolist() == [0] * 5
