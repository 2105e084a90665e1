"""Cycles of points in turn: when their distances are known well enough to stop."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.measure.cycles import is_settled

CYCLES = 40


def turns(*rates: float, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Steps of points of 16, 32, 64 … samples, on a machine whose speed swings by half."""
    drawn = np.random.default_rng(seed)
    samples = 16.0 * 2 ** np.arange(len(rates))
    swings = 1 + 0.5 * np.sin(np.arange(CYCLES) / 3)
    noises = np.exp(drawn.normal(0, noise, (len(rates), CYCLES)))
    return samples[:, None] / np.array(rates)[:, None] * swings * noises, samples


@pytest.mark.parametrize(
    ("rates", "noise", "expected"),
    [
        ((100, 100), 0.01, True),
        ((100, 100), 0.3, False),
        ((100, 40), 0.3, True),
        ((100, 40, 95), 0.3, False),
        ((100,), 0.3, True),
    ],
)
def test_points_are_settled_by_their_rates_whatever_the_lengths_of_their_steps(
    rates: tuple[float, ...], noise: float, expected: bool
) -> None:
    assert is_settled(*turns(*rates, noise=noise), half_width=0.02) is expected
