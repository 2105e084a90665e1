"""Simulated questions: answers are rarely wrong, although the data is looked at again and again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.rehearsal import Rehearsal, Rules, Windows, first_round, play
from dtsweep.inference.looks import look_level
from dtsweep.inference.selection import Candidates
from dtsweep.inference.verdicts import Answer

ZONE = float(np.log1p(0.03))
RULES = Rules(ZONE, look_level(0.95, 8), 8)
WINDOWS = Windows(
    first_half_width=0.05, half_width=0.02, second_s=0.02, longest_s=60.0, launch_s=2.0
)
SWEEPS = 60


class Machine:
    """Launches shift all points alike by 2 %, and each by `own`."""

    def __init__(self, costs: NDArray[np.float64], own: float, seed: int) -> None:
        self.costs, self.own, self.rng = costs, own, np.random.default_rng(seed)

    def __call__(self, points: NDArray[np.intp], number: int, error: float) -> NDArray[np.float64]:
        sigma = np.hypot(self.own, error)
        noise = self.rng.normal(0, sigma, len(points)) + self.rng.normal(0, 0.02)
        found: NDArray[np.float64] = self.costs[points] + noise
        return found


def settled(costs: NDArray[np.float64], *, own: float, seed: int) -> Rehearsal:
    everything = np.ones(len(costs), dtype=np.bool_)
    candidates = Candidates(
        counts=np.zeros(len(costs), dtype=np.intp),
        is_met=everything,
        is_likely=everything,
        prices=np.ones((len(costs), 1)),
    )
    machine = Machine(costs, own, seed)
    return play(first_round(len(costs), machine, WINDOWS), machine, candidates, WINDOWS, RULES)


def answers(costs: NDArray[np.float64], *, own: float) -> Counter[str]:
    """Answers of some sweeps, and how many of them are wrong."""
    marks: Counter[str] = Counter()
    for seed in range(SWEEPS):
        played = settled(costs, own=own, seed=seed)
        assert played.selection is not None
        answer, chosen = played.selection.answer, played.selection.chosen
        loss = costs[chosen] - costs.min()
        is_wrong_best = answer is Answer.BEST and loss > 0
        is_wrong_equal = answer is Answer.EQUAL and loss > ZONE
        marks.update([answer, *["wrong"] * int(is_wrong_best or is_wrong_equal)])
        marks["launches"] += sum(played.trials)
    return marks


# 5 % of 60 are 3; three standard deviations more are 8.
MOST_WRONG = 8


@pytest.mark.parametrize("own", [0.005, 0.02])
def test_a_best_that_leads_by_two_zones_is_found_for_less_than_half_of_five_launches(
    own: float,
) -> None:
    costs = np.array([0.0, 2 * ZONE, *np.linspace(0.1, 1, 10)])
    marks = answers(costs, own=own)
    assert marks[Answer.BEST] + marks[Answer.EQUAL] >= 0.9 * SWEEPS
    assert marks["wrong"] <= MOST_WRONG
    assert marks["launches"] < 0.4 * SWEEPS * 5 * len(costs)


@pytest.mark.parametrize("own", [0.005, 0.01])
def test_two_points_within_half_a_zone_are_equal(own: float) -> None:
    costs = np.array([0.0, ZONE / 4, *np.linspace(0.1, 1, 10)])
    marks = answers(costs, own=own)
    assert marks[Answer.EQUAL] >= 0.8 * SWEEPS
    assert marks["wrong"] <= MOST_WRONG


def test_many_points_just_outside_of_the_zone_are_rarely_taken_for_equal() -> None:
    # The worst case: any of eleven points may look good by chance.
    costs = np.array([0.0, *[1.02 * ZONE] * 11])
    assert answers(costs, own=0.02)["wrong"] <= MOST_WRONG


def test_windows_end_where_they_no_longer_limit_the_answer() -> None:
    costs = np.array([0.0, 0.0, 0.0, 0.5])
    played = settled(costs, own=0.0, seed=1)
    errors = np.sqrt(played.within.max(axis=0))
    # At most half of the one before, and no half-width below a third of the zone.
    assert (errors[2:] >= errors[1:-1] / 2.01).all()
    assert errors.min() >= 0.01 / 1.96 * 0.99
