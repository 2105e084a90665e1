"""Selection of a point by made-up differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtsweep.inference.selection import Candidates, Differences, Selection, select

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
        launches=4.0 * shape,
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
    assert found.forecast is not None
    # Whichever of the two is better by then, after 8 more launches: the error is 4 · √(4 / 12).
    assert found.forecast.rounds == 8
    assert (np.diff(found.forecast.chances) >= 0).all()


@pytest.mark.parametrize(("gap", "error", "most"), [(0.0, 2.2, 3), (1.0, 4.0, 8), (2.0, 5.0, 12)])
def test_the_forecast_comes_true_with_its_probability(gap: float, error: float, most: int) -> None:
    found = selected([0.0, gap], error=error)
    assert found.answer == "undecided" and found.forecast is not None
    rounds = found.forecast.rounds
    assert rounds is not None and rounds <= most
    rng = np.random.default_rng(0)
    # True differences by the estimate, further launches around them.
    truths = gap + error * rng.normal(size=400)
    spread = error * 2 / rounds**0.5
    means = (4 * gap + rounds * (truths + spread * rng.normal(size=400))) / (4 + rounds)
    after = error * (4 / (4 + rounds)) ** 0.5
    decided = [selected([0.0, mean], error=after).is_decided for mean in means]
    assert np.mean(decided) > 0.75


def test_a_round_that_hardly_decides_is_not_worth_its_time() -> None:
    loud, near = selected([0.0, 1.0], error=60.0), selected([0.0, 0.0], error=2.2)
    assert loud.forecast is not None and near.forecast is not None
    assert not loud.forecast.is_worth(share=0.3, left=1)
    assert near.forecast.is_worth(share=0.3, left=1)
    assert not near.forecast.is_worth(share=0.3, left=0)


def test_the_undecided_choice_is_the_one_that_may_lose_least() -> None:
    # The third point is known well to the second one alone; the first may be worse than both.
    error = [[1.0, 9.0, 9.0], [9.0, 1.0, 2.5], [9.0, 2.5, 1.0]]
    found = selected([0.0, 0.5, 0.5], error=error)
    assert (found.answer, found.chosen) == ("undecided", 0)
    # Costs 1, 2 and 3, each to each; the leader may be 40 worse than the third one.
    error = [[1.0, 4.0, 20.0], [4.0, 1.0, 4.0], [20.0, 4.0, 1.0]]
    found = selected([0.0, 1.0, 2.0], error=error)
    assert (found.answer, found.chosen) == ("undecided", 1)


def test_a_point_that_is_not_worse_than_the_zone_is_equal_though_it_is_not_the_best() -> None:
    found = selected([0.0, 2.0], error=2.0)
    # At most -2 + 1.645 · 2 worse; the other may be 2 + 1.645 · 2 worse.
    assert (found.answer, found.equal.tolist(), found.is_decided) == ("equal", [0], True)
    assert found.contenders.tolist() == [0, 1]


def test_a_drift_keeps_points_from_being_separated() -> None:
    assert selected([0.0, 5.0]).answer == "best"
    assert selected([0.0, 5.0], drift=4.0).answer == "equal"
    stuck = selected([0.0, 3.5], drift=7.0).forecast
    assert stuck is not None and stuck.rounds == np.inf


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
    assert found.forecast is not None


def test_numbers_among_more_points_are_those_of_the_candidates() -> None:
    found = selected([0.0, 5.0]).among(np.array([3, 1]), 5)
    assert (found.chosen, found.contenders.tolist()) == (3, [3])
    assert np.isnan(found.shortfall[[0, 2, 4]]).all()
