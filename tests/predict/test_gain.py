"""Expected gains are those of the definition, in any unit, and each group's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike

from dtsweep.inference.pareto import hypervolume_of
from dtsweep.predict.candidate_costs import Estimates, latency_and_rate
from dtsweep.predict.gain import (
    REFERENCE,
    Gains,
    chance_to_improve,
    chance_to_join,
    expected_gain,
    expected_improvement,
    hypervolume_gain,
)

SAMPLES = np.array([8.0, 8.0, 64.0, 64.0, 32.0])
STEP_S = np.array([0.1, 0.2, 0.4, 0.3, 0.2])
ERROR = np.array([0.1, 0.1, 0.1, 0.3, 0.2])


def estimates(
    step_s: ArrayLike, error: ArrayLike, *, measured: ArrayLike, chance: ArrayLike = 1.0
) -> Estimates:
    log_step_s = np.log(step_s)
    is_measured = np.zeros(len(log_step_s), dtype=np.bool_)
    is_measured[np.asarray(measured)] = True
    return Estimates(
        log_step_s=log_step_s,
        error=np.asarray(error, dtype=np.float64),
        is_measured=is_measured,
        chance=np.broadcast_to(np.asarray(chance, dtype=np.float64), log_step_s.shape),
    )


def test_gain_of_area_is_the_difference_of_hypervolumes() -> None:
    rng = np.random.default_rng(0)
    frontier = np.array([[0.1, 0.9], [0.3, 0.4], [0.8, 0.2]])
    points = rng.uniform(-0.2, 1.2, (50, 2))
    reference = np.full(2, REFERENCE)
    before = hypervolume_of(frontier, reference)
    after = [hypervolume_of(np.vstack([frontier, point]), reference) for point in points]
    np.testing.assert_allclose(
        hypervolume_gain(points, frontier), np.array(after) - before, atol=1e-12
    )


def test_expected_gain_is_the_mean_gain_of_draws() -> None:
    objectives = latency_and_rate(SAMPLES)
    at = estimates(STEP_S, ERROR, measured=[0, 2])
    gains = expected_gain(objectives, at)
    costs = objectives.log_costs(at.log_step_s)
    low, width = costs.min(axis=0), np.ptp(costs, axis=0)
    draws = at.log_step_s + ERROR * np.random.default_rng(0).normal(size=(20_000, 5))
    drawn = (objectives.log_costs(draws) - low) / width
    frontier = ((costs - low) / width)[[0, 2]]
    expected = hypervolume_gain(drawn, frontier)
    error = expected.std(axis=0) / np.sqrt(len(draws))
    rows = [1, 3, 4]
    # Eight nodes of the quadrature are good to 5 % where the gain has a kink.
    difference = np.abs(gains.gain - expected.mean(axis=0))[rows]
    assert (difference <= 4 * error[rows] + 0.05 * expected.mean(axis=0)[rows]).all()
    assert gains.gain[[0, 2]].tolist() == [0, 0]
    volume = hypervolume_of(frontier, np.full(2, REFERENCE))
    assert gains.hypervolume.tolist() == pytest.approx([volume] * 5)


def test_a_sure_candidate_gains_the_area_that_it_adds_and_a_dominated_one_nothing() -> None:
    # Scaled costs: (1, 1) was measured and has the area 0.1 × 0.1; (0, 0) has 1.1 × 1.1.
    gains = expected_gain(latency_and_rate([8, 8]), estimates([0.2, 0.1], [1e-9] * 2, measured=[0]))
    assert gains.hypervolume[0] == pytest.approx(0.01)
    assert gains.gain[1] == pytest.approx(1.2)
    worse = estimates([0.1, 0.2, 0.4], [1e-6] * 3, measured=[0])
    assert expected_gain(latency_and_rate([8, 8, 8]), worse).gain.tolist() == [0, 0, 0]
    # A search without a measurement is not settled.
    assert Gains(gain=np.zeros(3), hypervolume=np.zeros(3)).largest_share == np.inf


def test_gains_do_not_depend_on_units() -> None:
    in_s = expected_gain(latency_and_rate(SAMPLES), estimates(STEP_S, ERROR, measured=[0, 2]))
    in_ms = expected_gain(
        latency_and_rate(SAMPLES * 7), estimates(STEP_S * 1000, ERROR, measured=[0, 2])
    )
    np.testing.assert_allclose(in_s.gain, in_ms.gain)


def test_a_gain_is_a_share_of_its_own_group() -> None:
    # The steps of the second group are a hundred times as long; its shares are the first group's.
    step_s = np.array([0.2, 0.1])
    at = estimates([*step_s, *(100 * step_s)], [0.3] * 4, measured=[0, 2])
    share = expected_gain(latency_and_rate([8] * 4, group=[0, 0, 1, 1]), at).share
    assert share[1] == pytest.approx(share[3])
    alone = expected_gain(latency_and_rate([8, 8]), estimates(step_s, [0.3] * 2, measured=[0]))
    assert share[1] == pytest.approx(alone.share[1])


def test_step_times_that_break_a_condition_gain_nothing() -> None:
    at = estimates([0.2, 0.1, 0.1], [1e-6] * 3, measured=[0])
    objectives = replace(latency_and_rate([8, 8, 8]), longest=np.log([1.0, 0.05, 0.11]))
    gains = expected_gain(objectives, at)
    assert gains.gain[1] == 0
    assert gains.gain[2] > 1
    assert chance_to_join(objectives, at, zone=0.02).round(6).tolist() == [0, 0, 1]
    # A measured one that breaks it is not on the frontier.
    none = expected_gain(replace(objectives, longest=np.log([0.1, 1.0, 1.0])), at)
    assert none.hypervolume.tolist() == [0, 0, 0]


def test_a_gain_counts_by_the_chance_of_a_measurement() -> None:
    objectives = latency_and_rate(SAMPLES)
    sure = expected_gain(objectives, estimates(STEP_S, ERROR, measured=[0]))
    half = expected_gain(objectives, estimates(STEP_S, ERROR, measured=[0], chance=0.5))
    np.testing.assert_allclose(half.gain, sure.gain / 2)


def test_expected_improvement_is_the_mean_improvement_of_draws_that_meet_the_condition() -> None:
    at = estimates([0.1, 0.2, 0.3], [0.1, 0.5, 0.2], measured=[0])
    cost, longest = -np.log([8.0, 16.0, 32.0]), np.log([1.0, 0.21, 0.25])
    best = float(np.log(0.1 / 8))
    draws = at.log_step_s + at.error * np.random.default_rng(0).normal(size=(40_000, 3))
    improvement = (best - (cost + draws)).clip(min=0) * (draws <= longest)
    expected = improvement.mean(axis=0) * [0, 1, 1]
    found = expected_improvement(cost, at, best=best, most_log_step_s=longest)
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_a_candidate_as_good_as_the_frontier_but_for_the_zone_has_an_even_chance_to_join() -> None:
    # The last one is 2 % faster than the measured one, exactly the zone.
    at = estimates([0.102, 0.102, 0.1], [0.01] * 3, measured=[0])
    chances = chance_to_join(latency_and_rate([8, 8, 8]), at, zone=0.02)
    assert chances[0] == 0
    assert chances[1] < 0.05
    assert chances[2] == pytest.approx(0.5)
    # An empty group is joined for sure.
    at = estimates([0.1, 0.5], [0.1, 0.1], measured=[0])
    assert chance_to_join(latency_and_rate([8, 8], group=[0, 1]), at, zone=0.02).tolist() == [0, 1]


def test_the_chance_to_join_is_the_share_of_draws_that_no_bettered_member_dominates() -> None:
    objectives = latency_and_rate([8, 64, 32])
    at = estimates([0.1, 0.4, 0.24], [0.1, 0.1, 0.2], measured=[0, 1])
    draws = at.log_step_s[2] + 0.2 * np.random.default_rng(0).normal(size=20_000)
    drawn = objectives.offset[2] + draws[:, None]
    members = objectives.log_costs(at.log_step_s)[:2] - np.log(1.05)
    is_dominated = (members[:, None, :] <= drawn).all(axis=2).any(axis=0)
    chance = chance_to_join(objectives, at, zone=0.05)[2]
    assert chance == pytest.approx(1 - is_dominated.mean(), abs=0.015)


def test_a_better_candidate_that_breaks_the_condition_has_no_chance() -> None:
    at = estimates([0.1, 0.05, 0.05], [0.01] * 3, measured=[0])
    longest = np.array([1.0, np.inf, np.log(0.04)])
    chances = chance_to_improve(
        np.zeros(3), at, best=np.log(0.1), most_log_step_s=longest, zone=0.02
    )
    np.testing.assert_allclose(chances, [0, 1, 0], atol=1e-9)
