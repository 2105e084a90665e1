"""Chances of candidates to beat the answer."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.search.gain import chance_to_improve, chance_to_join
from dtsweep.search.objectives import latency_and_rate
from tests.search.test_gain import estimates


def test_a_candidate_as_good_as_the_frontier_but_for_the_zone_has_an_even_chance() -> None:
    # The last one is 2 % faster than the measured one, exactly the zone.
    at = estimates([0.102, 0.102, 0.1], [0.01] * 3, measured=[0])
    chances = chance_to_join(latency_and_rate([8, 8, 8]), at, zone=0.02)
    assert chances[0] == 0
    assert chances[1] < 0.05
    assert chances[2] == pytest.approx(0.5)


def test_the_chance_to_join_is_the_share_of_draws_that_no_bettered_member_dominates() -> None:
    objectives = latency_and_rate([8, 64, 32])
    at = estimates([0.1, 0.4, 0.24], [0.1, 0.1, 0.2], measured=[0, 1])
    draws = at.log_step_s[2] + 0.2 * np.random.default_rng(0).normal(size=20_000)
    drawn = objectives.offset[2] + draws[:, None]
    members = objectives.log_costs(at.log_step_s)[:2] - np.log(1.05)
    is_dominated = (members[:, None, :] <= drawn).all(axis=2).any(axis=0)
    chance = chance_to_join(objectives, at, zone=0.05)[2]
    assert chance == pytest.approx(1 - is_dominated.mean(), abs=0.015)


def test_an_empty_group_is_joined_for_sure() -> None:
    at = estimates([0.1, 0.5], [0.1, 0.1], measured=[0])
    assert chance_to_join(latency_and_rate([8, 8], group=[0, 1]), at, zone=0.02).tolist() == [0, 1]


def test_a_better_candidate_that_breaks_the_condition_has_no_chance() -> None:
    at = estimates([0.1, 0.05, 0.05], [0.01] * 3, measured=[0])
    longest = np.array([1.0, np.inf, np.log(0.04)])
    chances = chance_to_improve(
        np.zeros(3), at, best=np.log(0.1), most_log_step_s=longest, zone=0.02
    )
    np.testing.assert_allclose(chances, [0, 1, 0], atol=1e-9)
