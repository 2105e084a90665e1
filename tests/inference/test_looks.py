"""Significance levels of looks: all looks together keep the confidence."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from dtsweep.inference.looks import look_level


def crossing(level: float, last: int, *, count: int = 100_000) -> float:
    """Share of simulated sums of normal numbers that are significant at any look."""
    rng = np.random.default_rng(0)
    sums = rng.normal(size=(count, last)).cumsum(axis=1)[:, 1:]
    looks = np.arange(2, last + 1)
    bound = -special.ndtri(level / 2)
    return float((np.abs(sums) > bound * looks**0.5).any(axis=1).mean())


@pytest.mark.parametrize(("confidence", "last"), [(0.95, 3), (0.95, 20), (0.8, 8)])
def test_sums_without_an_effect_are_seldom_significant_at_any_look(
    confidence: float, last: int
) -> None:
    level = look_level(confidence, last)
    chance = (confidence * (1 - confidence) / 100_000) ** 0.5
    assert crossing(level, last) == pytest.approx(1 - confidence, abs=4 * chance)


def test_one_look_has_the_whole_level_and_more_looks_have_less() -> None:
    levels = [look_level(0.95, launches) for launches in (1, 2, 3, 8, 20)]
    assert levels[:2] == pytest.approx([0.05, 0.05])
    assert levels[1:] == sorted(levels[1:], reverse=True)
    # Pocock (1977): two looks at 0.0294 each, where the second has twice the data. Here it has
    # 3/2 of it, so the looks depend on each other more.
    assert 0.0294 < levels[2] < 0.05
