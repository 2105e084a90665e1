"""Cycles of points in turn: when their distances are known well enough to stop."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.measure.cycles import effects_of, in_columns, standing

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
    ],
)
def test_points_are_settled_by_their_rates_whatever_the_lengths_of_their_steps(
    rates: tuple[float, ...], noise: float, expected: bool
) -> None:
    step_s, samples = turns(*rates, noise=noise)
    logs = np.log(samples[:, None] / step_s)
    none_left = np.zeros(len(rates), dtype=bool)
    assert standing(logs, none_left, half_width=0.02).is_settled is expected


def test_a_point_that_is_clearly_behind_is_named_and_others_are_not() -> None:
    step_s, samples = turns(100, 40, 98, noise=0.1)
    logs = np.log(samples[:, None] / step_s)
    found = standing(logs, np.zeros(3, dtype=bool), half_width=0.001)
    assert found.is_behind.tolist() == [False, True, False]
    # What has left stays behind, and keeps nobody from an end.
    found = standing(logs, np.array([True, False, False]), half_width=0.001)
    assert found.is_behind.tolist() == [True, True, False]
    assert found.is_settled


def test_points_that_have_left_keep_their_distance_from_those_that_went_on() -> None:
    rng = np.random.default_rng(2)
    swings = rng.normal(0, 0.3, CYCLES)
    true = np.array([0.0, -0.02, -0.5, -0.6])
    logs = true[:, None] + swings + rng.normal(0, 0.01, (4, CYCLES))
    lengths = (CYCLES, CYCLES, 8, 12)
    ragged = [row[:length].tolist() for row, length in zip(logs, lengths, strict=True)]
    levels, errors = effects_of(in_columns(ragged))
    assert levels - levels[0] == pytest.approx(true, abs=0.02)
    whole = effects_of(logs)
    # Two points that went on are known as well as if they had been alone.
    assert errors[:2] == pytest.approx(whole.errors[:2], rel=0.5)
    assert (errors[2:] > errors[:2].max()).all()
