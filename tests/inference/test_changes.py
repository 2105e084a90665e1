"""Changes are found where they are, and noise has none, at the promised level."""

from __future__ import annotations

import numpy as np
import pytest

from dtsweep.inference.changes import changes_in

LEVEL = 0.05


def test_a_clear_change_is_as_unlikely_as_the_orders_that_divide_alike() -> None:
    noise = np.array([0.00, 0.01, -0.01, 0.02, -0.02, 0.01, 0.00, -0.01])
    clear = noise - 0.3 * (np.arange(8) >= 5)
    begins, p_values = changes_in(np.array([noise, clear, np.zeros(8)]))
    # Of the 8!/(5! 3!) = 56 ways to divide eight runs, two leave the three slow ones together at an
    # end: 2/56.
    assert (begins[1], p_values[1]) == (5, pytest.approx(2 / 56, abs=0.012))
    assert (p_values[[0, 2]] > 0.5).all()
    # Runs that were not measured count for nothing.
    gaps = np.insert(clear, [2, 5, 5], np.nan)[None]
    assert np.nanmean(gaps[0, changes_in(gaps)[0][0] :]) == pytest.approx(clear[5:].mean())
    # A single last run may be an outlier.
    assert changes_in(clear[None, :6])[1][0] > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("runs", [10, 25])
def test_noise_has_no_change_more_often_than_promised(runs: int) -> None:
    rng = np.random.default_rng(runs)
    false_alarms = 0
    for _ in range(120):
        # Heavy tails, and what is common to all points of a run.
        logs = 0.02 * (rng.standard_t(2, (4, runs)) + rng.normal(0, 2, runs))
        false_alarms += bool((changes_in(logs)[1] <= LEVEL).any())
    # Of 120, 6 are expected; more than 12 have a probability of 1 %.
    assert false_alarms <= 12


@pytest.mark.slow
def test_a_tenth_is_found_at_its_run_among_points_that_stay() -> None:
    rng = np.random.default_rng(1)
    found, places, others = 0, 0, 0
    for _ in range(40):
        logs = rng.normal(0, 0.02, (4, 16))
        logs[2, 12:] -= 0.1
        begins, p_values = changes_in(logs)
        found += p_values[2] <= LEVEL
        places += begins[2] == 12
        others += (np.delete(p_values, 2) <= LEVEL).any()
    assert (found, others <= 5) == (40, True)
    assert places >= 38
