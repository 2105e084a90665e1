"""Tests of the step-time model on times made from the formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dtsweep.predict.limits import bounds_of, reasons_of
from dtsweep.predict.setups import MeasuredSetups, Numbers, Setups
from dtsweep.predict.step_time import StepTimeModel, fit_step_time
from tests.setups import setups_of


def grid(**settings: Any) -> Setups:
    """Make one to four nodes of one to four workers, three micro-batches."""
    worlds = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (8, 2), (4, 4), (8, 4), (16, 4)]
    rows = [(workers, nodes, batch) for workers, nodes in worlds for batch in (4, 16, 64)]
    workers, nodes, batches = np.array(rows, dtype=float).T
    return setups_of(workers=workers, nodes=nodes, micro_batch=batches, **settings)


def seconds(setups: Setups, *, exchange_s: float = 0.03) -> tuple[Numbers, Numbers]:
    """Step and pass times: 10 ms and 1 ms per sample, a ring between nodes, without overlap."""
    one_pass = 0.01 + 0.001 * setups.micro_batch
    ring = 2 * (setups.workers - 1) / setups.workers
    exchange = np.where(setups.nodes > 1, exchange_s, exchange_s / 10) * ring * setups.payload
    return setups.accumulation * one_pass + exchange / setups.period, one_pass


def measure(
    setups: Setups, step_s: Numbers, *, pass_s: Numbers | None = None, noise: float = 0.01
) -> MeasuredSetups:
    """Measure each row in a launch of its own."""
    count = len(setups)
    factors = np.exp(np.random.default_rng(0).normal(0, noise, count))
    return MeasuredSetups(
        step_s=step_s * factors,
        error=np.full(count, noise / 2),
        pass_s=np.full(count, np.nan) if pass_s is None else pass_s,
        launch=np.arange(count),
    )


@pytest.fixture(scope="module")
def model() -> StepTimeModel:
    setups = grid()
    step_s, pass_s = seconds(setups)
    return fit_step_time(setups, measure(setups, step_s, pass_s=pass_s))


def test_configurations_between_measured_ones_are_predicted(model: StepTimeModel) -> None:
    others = setups_of(workers=[2, 6, 12, 16], nodes=[1, 2, 4, 4], micro_batch=[8, 32, 8, 24])
    prediction = model.predict(others)
    away = prediction.log_step_s - np.log(seconds(others)[0])
    assert np.abs(away).max() < 0.1
    assert np.all(np.abs(away) < 1.645 * prediction.error)
    assert reasons_of(others, model.setups) == (None,) * len(others)


def test_errors_grow_away_from_what_was_measured(model: StepTimeModel) -> None:
    prediction = model.predict(setups_of(workers=[16, 64], nodes=[4, 16], micro_batch=16))
    assert prediction.error[1] > 2 * prediction.error[0]
    assert prediction.distance[0] == pytest.approx(0, abs=1e-9)
    assert 0.1 < prediction.distance[1] <= 1


def test_intervals_cover_about_nine_of_ten_new_measurements() -> None:
    setups = grid()
    truth = np.log(seconds(setups)[0])
    chosen, others = np.arange(0, 27, 2), np.arange(1, 27, 2)
    measured = measure(setups.take(chosen), np.exp(truth[chosen]), noise=0.05)
    prediction = fit_step_time(setups.take(chosen), measured).predict(setups.take(others))
    again = truth[others] + np.random.default_rng(1).normal(0, 0.05, (20, len(others)))
    covered = np.abs(again - prediction.log_step_s) < 1.645 * prediction.error
    assert 0.85 < covered.mean() < 0.995


def test_times_in_other_units_shift_predictions_alone(model: StepTimeModel) -> None:
    setups = model.setups
    step_s, pass_s = seconds(setups)
    measured = measure(setups, 1000 * step_s, pass_s=1000 * pass_s)
    other = fit_step_time(setups, measured).predict(setups)
    one = model.predict(setups)
    assert other.log_step_s - one.log_step_s == pytest.approx(np.log(1000), abs=1e-6)
    assert other.error == pytest.approx(one.error, rel=1e-5)


def test_modes_and_compressions_have_factors_of_their_own() -> None:
    setups = setups_of(
        workers=np.tile([2, 4, 8], 8),
        nodes=np.tile([2, 4, 8], 8),
        micro_batch=np.repeat([8, 64], 12),
        categories={
            "mode": np.tile(np.repeat(["ddp", "zero1"], 3), 4),
            "compression": np.tile(np.repeat(["none", "fp16"], 6), 2),
        },
    )
    step_s, pass_s = seconds(setups)
    is_zero, is_half = (
        setups.categories["mode"] == "zero1",
        setups.categories["compression"] == "fp16",
    )
    exchange = (step_s - pass_s) * np.where(is_half, 0.5, 1) * np.where(is_zero, 1.5, 1)
    rows = np.flatnonzero(~(is_zero & is_half & (setups.workers == 4)))
    measured = measure(setups.take(rows), (pass_s + exchange)[rows])
    model = fit_step_time(setups.take(rows), measured)
    away = model.predict(setups).log_step_s - np.log(pass_s + exchange)
    assert np.abs(away).max() < 0.08


def test_a_number_of_the_user_has_a_power() -> None:
    setups = grid(numbers={"depth": np.tile([2, 8, 4], 9)})
    step_s, _ = seconds(setups)
    measured = measure(setups, step_s * setups.numbers["depth"])
    asked = setups_of(workers=[1, 1], micro_batch=16, numbers={"depth": [2, 16]})
    small, large = fit_step_time(setups, measured).predict(asked).log_step_s
    assert (large - small) / np.log(8) == pytest.approx(1, abs=0.25)


def test_a_period_divides_the_exchange_and_sharded_passes_each_have_one() -> None:
    setups = grid()
    step_s, pass_s = seconds(setups, exchange_s=0.1)
    model = fit_step_time(setups, measure(setups, step_s, pass_s=pass_s))
    others = replace(setups_of(workers=[8], nodes=2, micro_batch=16), period=np.array([4.0]))
    # 26 ms of compute and 175 ms of an exchange that every fourth step waits for
    assert np.exp(model.predict(others).log_step_s[0]) == pytest.approx(0.070, rel=0.15)
    one = setups_of(workers=[8], nodes=2, micro_batch=4, accumulation=4)
    each = replace(one, exchanges_each_pass=np.array([True]))
    fewer, more = (float(model.predict(some).log_step_s[0]) for some in (one, each))
    assert np.exp(fewer) < 0.8 * np.exp(more)


def test_one_measurement_is_enough_for_a_wide_prediction() -> None:
    one = setups_of(workers=[1], micro_batch=8)
    model = fit_step_time(one, measure(one, np.array([0.5])))
    prediction = model.predict(setups_of(workers=[1, 4], micro_batch=[8, 32]))
    assert prediction.log_step_s[0] == pytest.approx(np.log(0.5), abs=0.05)
    assert prediction.error[1] > 0.2


def test_a_believed_value_moves_its_neighbours_without_a_fit(model: StepTimeModel) -> None:
    believed = setups_of(workers=[32], nodes=8, micro_batch=16)
    before = model.predict(believed)
    after = model.with_measured(believed, before.log_step_s + 0.3).predict(believed)
    moved = float(after.log_step_s[0] - before.log_step_s[0])
    assert 0.2 < moved <= 0.3
    assert after.error[0] < before.error[0] / 2


def test_launches_that_disagree_have_a_spread() -> None:
    setups = setups_of(workers=[2] * 6 + [4] * 6, micro_batch=8)
    step_s = np.tile(np.exp([-0.15, 0.15, -0.15, 0.15, -0.15, 0.15]), 2) * 0.1
    apart = measure(setups, step_s, noise=1e-3)
    spread = fit_step_time(setups, apart).posterior.strengths.of["launch"]
    equal = measure(setups, np.full(12, 0.1), noise=1e-3)
    assert spread > 3 * fit_step_time(setups, equal).posterior.strengths.of["launch"]


HOSTILE = {
    "one micro-batch and one worker": (setups_of(workers=[1, 1, 1], micro_batch=8), 20.0),
    "equal rows": (setups_of(workers=[4, 4, 4], nodes=2, micro_batch=8), 0.0),
    "sizes that differ by nine orders of magnitude": (
        setups_of(workers=[1, 1000, 30000], nodes=[1, 100, 3000], micro_batch=[1, 1e5, 1e9]),
        20.0,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_strange_measurements_give_finite_predictions(name: str) -> None:
    setups, spread = HOSTILE[name]
    step_s = np.exp(np.linspace(-spread, spread, 3))
    measured = MeasuredSetups(
        step_s=step_s, error=np.zeros(3), pass_s=step_s, launch=np.zeros(3, dtype=np.int64)
    )
    prediction = fit_step_time(setups, measured).predict(setups)
    assert np.all(np.isfinite(prediction.log_step_s))
    assert np.all(np.isfinite(prediction.error) & (prediction.error > 0))


def test_times_that_are_not_positive_are_an_error() -> None:
    for times in ([], [0.1, np.nan], [0.1, 0.0]):
        setups = setups_of(workers=np.ones(len(times)))
        with pytest.raises(ValueError, match="at least one, all positive and finite"):
            fit_step_time(setups, measure(setups, np.array(times)))


def test_a_central_store_gets_slower_with_workers_and_faster_with_servers() -> None:
    workers = np.tile([1.0, 2.0, 4.0, 8.0], 3)
    servers = np.repeat([1.0, 2.0, 4.0], 4)
    setups = replace(setups_of(workers=workers, micro_batch=8), servers=servers)
    model = fit_step_time(setups, measure(setups, 0.02 + 0.01 * workers / servers))
    asked = replace(setups_of(workers=[16, 16], micro_batch=8), servers=np.array([1.0, 4.0]))
    assert np.exp(model.predict(asked).log_step_s) == pytest.approx([0.18, 0.06], rel=0.15)


def test_steps_stay_within_those_of_less_and_of_more_work() -> None:
    # As published for 16 configurations of ImageNet, whose exchange grows with the batch.
    rows = np.array(
        [
            (4, 8, 40, 0.258, 0.152), (5, 8, 163, 1.111, 0.298), (5, 8, 81, 0.595, 0.202),
            (1, 5, 163, 0.443, 0.312), (2, 9, 462, 1.006, 0.711), (1, 1, 163, 0.312, 0.311),
            (2, 16, 115, 0.452, 0.245), (2, 5, 462, 0.738, 0.710), (4, 32, 81, 3.672, 0.205),
            (2, 9, 115, 0.324, 0.243), (1, 3, 600, 1.186, 0.902), (5, 6, 231, 1.719, 0.383),
            (4, 28, 600, 7.709, 0.907), (2, 8, 462, 0.812, 0.711), (3, 8, 40, 0.237, 0.148),
            (4, 20, 600, 6.044, 0.905),
        ]
    )  # fmt: skip
    nodes, workers, batches, step_s, pass_s = rows.T
    setups = setups_of(workers=workers, nodes=nodes, micro_batch=batches)
    model = fit_step_time(setups, measure(setups, step_s, pass_s=pass_s, noise=0.0))
    others = setups_of(workers=[28, 28], nodes=4, micro_batch=[20, 40])
    prediction = model.predict(others)
    assert np.all(np.exp(prediction.log_step_s) <= 2 * 3.672)
    assert np.all(np.exp(prediction.log_step_s) < 10 * np.array([0.285, 0.486]))


def test_bounds_are_the_steps_of_less_and_of_more_work() -> None:
    setups = setups_of(workers=[1, 8], micro_batch=16)
    low, high = bounds_of(setups_of(workers=[4], micro_batch=16), setups, np.log([1.0, 3.0]))
    assert np.exp([low[0], high[0]]) == pytest.approx([0.5, 6.0])
    beyond = bounds_of(setups_of(workers=[16], micro_batch=16), setups, np.log([1.0, 3.0]))
    assert np.exp(beyond[0]) == pytest.approx(1.5)
    assert np.isinf(beyond[1])
