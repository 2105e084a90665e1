"""The next point is the one of the largest gain by cost, in the live session while that pays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dtsweep.predict.candidate_costs import Estimates
from dtsweep.predict.choice import Charges, Pool, SearchProgress, next_points
from dtsweep.predict.setups import Numbers, Prediction, Setups
from tests.setups import setups_of

SETUPS = setups_of(workers=[1, 1, 2, 2], micro_batch=[4, 8, 4, 8])


@dataclass(frozen=True)
class Believer:
    """Model that is sure of what lies close to what it believes, and of nothing else."""

    reach: float = 0.0
    """Difference of micro-batches up to which one tells of another, with as many workers."""
    believed: tuple[tuple[float, float], ...] = ()

    def predict(self, setups: Setups) -> Prediction:
        count = len(setups)
        error = np.full(count, 0.5)
        for workers, micro_batch in self.believed:
            is_close = np.abs(setups.micro_batch - micro_batch) <= self.reach
            error[is_close & (setups.workers == workers)] = 1e-9
        return Prediction(
            log_step_s=np.zeros(count),
            error=error,
            distance=np.zeros(count),
        )

    def with_measured(self, setups: Setups, log_step_s: Numbers) -> Believer:
        names = zip(setups.workers.tolist(), setups.micro_batch.tolist(), strict=True)
        return replace(self, believed=(*self.believed, *names))


def pool(gains: list[float], *, start_s: float = 30.0) -> Pool:
    """Pool whose candidates gain these, as long as they are open."""

    def gain_of(estimates: Estimates) -> Numbers:
        return np.where(estimates.is_open & (estimates.error > 0.1), gains, 0.0)

    charges = Charges(
        workers=SETUPS.workers,
        world=np.array([0, 0, 1, 1]),
        start_s=np.full(4, start_s),
        rest_s=np.full(4, 2.0),
        steps=40,
    )
    return Pool(setups=SETUPS, charges=charges, gain_of=gain_of)


START = SearchProgress(
    measured=np.array([], dtype=np.int64), log_step_s=np.array([]), chance=np.ones(4)
)


def test_a_trial_costs_its_workers_times_start_rest_and_window() -> None:
    charges = pool([1] * 4).charges
    seconds = np.log([0.1, 0.1, 0.1, 0.2])
    assert charges.of(seconds) == pytest.approx([36, 36, 72, 80])
    assert charges.of(seconds, live=1) == pytest.approx([36, 36, 12, 20])
    assert replace(charges, least_s=5.0).of(seconds)[0] == pytest.approx(37)


def test_the_live_session_is_used_while_its_gain_per_second_is_the_best() -> None:
    # A point of the live world costs 2 × 42 s, one of the other world 72 s.
    little_better, much_better = pool([1.1, 0, 1, 1]), pool([1.1, 0, 1, 0.5])
    in_world_1 = replace(START, live=1)
    assert next_points(little_better, Believer(), progress=START).tolist() == [0]
    assert next_points(pool([0.8, 0, 1, 0]), Believer(), progress=in_world_1).tolist() == [2]
    assert next_points(much_better, Believer(), progress=in_world_1).tolist() == [0]
    free = pool([1.1, 0, 1, 1], start_s=1000.0)
    assert next_points(free, Believer(), progress=in_world_1, most=2).tolist() == [2, 3]


def test_a_batch_holds_the_open_points_of_one_world_that_its_first_ones_do_not_tell() -> None:
    def batch(
        gains: list[float], *, reach: float = 0.0, progress: SearchProgress = START
    ) -> list[int]:
        return next_points(pool(gains), Believer(reach), progress=progress, most=4).tolist()

    # It ends where another world gains more.
    assert batch([5, 4, 3, 3]) == [0, 1]
    assert batch([5, 4, 0, 0], reach=4) == [0]
    # No point twice, and no measured or failed one.
    progress = replace(
        START, measured=np.array([0]), log_step_s=np.zeros(1), chance=np.array([1, 1, 0, 1.0])
    )
    assert batch([9, 1, 9, 0], progress=progress) == [1]
    assert batch([0] * 4) == []


def test_a_lower_power_of_the_cost_prefers_the_larger_gain() -> None:
    # The third one has twice the workers.
    two = pool([1, 0, 1.7, 0])
    by_power = [next_points(two, Believer(), progress=START, power=power) for power in (1.0, 0.5)]
    assert [rows.tolist() for rows in by_power] == [[0], [2]]
