"""Simulated questions of known answer; `benchmarks/settle.py` has the rates of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import settle as settle_benchmark
from benchmarks.rehearsal import Rehearsal, Rules, Windows, first_round, play
from dtsweep.inference.looks import look_level
from dtsweep.inference.selection import Candidates
from dtsweep.inference.verdicts import Answer

ZONE = float(np.log1p(0.03))
RULES = Rules(ZONE, look_level(0.95, 8), 8)
WINDOWS = Windows(
    first_half_width=0.05, half_width=0.02, second_s=0.02, longest_s=60.0, launch_s=2.0
)


def settled(costs: NDArray[np.float64], *, own: float, seed: int) -> Rehearsal:
    """Play until the question is settled; launches shift all points by 2 %, and each by `own`."""
    rng = np.random.default_rng(seed)

    def measure(points: NDArray[np.intp], number: int, error: float) -> NDArray[np.float64]:
        noise = rng.normal(0, np.hypot(own, error), len(points)) + rng.normal(0, 0.02)
        found: NDArray[np.float64] = costs[points] + noise
        return found

    everything = np.ones(len(costs), dtype=np.bool_)
    candidates = Candidates(
        counts=np.zeros(len(costs), dtype=np.intp),
        is_met=everything,
        is_likely=everything,
        prices=np.ones((len(costs), 1)),
    )
    return play(first_round(len(costs), measure, WINDOWS), measure, candidates, WINDOWS, RULES)


@pytest.mark.parametrize(
    ("ahead", "own", "answers"),
    [
        (2 * ZONE, 0.005, {Answer.BEST, Answer.EQUAL}),
        (2 * ZONE, 0.02, {Answer.BEST, Answer.EQUAL}),
        (ZONE / 4, 0.005, {Answer.EQUAL}),
    ],
)
def test_a_question_is_answered_rightly_for_less_than_half_of_five_launches_each(
    ahead: float, own: float, answers: set[Answer]
) -> None:
    costs = np.array([0.0, ahead, *np.linspace(0.1, 1, 10)])
    played = [settled(costs, own=own, seed=seed) for seed in range(8)]
    selections = [one.selection for one in played if one.selection is not None]
    decided = [selection for selection in selections if selection.answer in answers]
    assert len(decided) >= 6
    assert all(costs[selection.chosen] < ZONE for selection in decided)
    assert sum(sum(one.trials) for one in played) < 0.5 * 8 * 5 * len(costs)


def test_points_just_outside_of_the_zone_are_seldom_taken_for_equal() -> None:
    costs = np.array([0.0, *[1.02 * ZONE] * 11])
    found = [settled(costs, own=0.02, seed=seed).selection for seed in range(10)]
    assert sum(one is not None and one.is_decided and one.chosen != 0 for one in found) <= 2


def test_windows_end_where_they_no_longer_limit_the_answer() -> None:
    costs = np.array([0.0, 0.0, 0.0, 0.5])
    played = settled(costs, own=0.0, seed=1)
    errors = np.sqrt(played.within.max(axis=0))
    # At most half of the one before, and no half-width below a third of the zone.
    assert (errors[2:] >= errors[1:-1] / 2.01).all()
    assert errors.min() >= 0.01 / 1.96 * 0.99


def test_on_recorded_drift_turns_answer_what_whole_windows_leave_open() -> None:
    """`benchmarks/settle.py` has the table."""
    noise, surface = settle_benchmark.Noise(0.01, "recorded"), np.linspace(5, 7, 40)
    truth = settle_benchmark.TRUTHS[1]
    answered = {}
    for way in (settle_benchmark.settled, settle_benchmark.in_turn):
        cells, _, _ = settle_benchmark.row_of(way, surface, 6, truth, noise, sweeps=20)
        shares = dict(zip(settle_benchmark.COLUMNS, cells, strict=True))
        answered[way] = 1 - float(shares["undecided"].rstrip("%")) / 100
        wrong = sum(float(shares[f"wrong {kind}"].rstrip("%")) for kind in ("best", "equal"))
        assert wrong <= 10
    assert answered[settle_benchmark.in_turn] > 0.8
    assert answered[settle_benchmark.settled] < 0.5
