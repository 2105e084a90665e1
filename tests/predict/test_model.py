"""Predictions of configurations that were not measured."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis.settings import settings_of_rows
from dtsweep.predict.model import PREDICTED, PerformanceModel, performance_model
from dtsweep.sweep.point import Point
from tests import frames

WATTS, USD_PER_HOUR = 50.0, 2.0


def step_s(workers: int, micro_batch: int, accumulation: int) -> float:
    """Step time of a made-up job: passes, and an exchange of several workers."""
    exchange = 0.02 * 2 * (workers - 1) / workers
    return accumulation * (0.01 + 0.004 * micro_batch) + exchange


def row(workers: int, micro_batch: int, accumulation: int = 1, **others: Any) -> dict[str, Any]:
    step = step_s(workers, micro_batch, accumulation)
    rate = workers * micro_batch * accumulation / step
    return {
        "workers": workers,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "samples_per_s": rate,
        "samples_per_s_error": 0.005 * rate,
        "step_p50_s": 0.9 * step,
        "energy_j_per_sample": WATTS * workers / rate,
        "usd_per_hour": USD_PER_HOUR,
        "session": f"session{workers}",
        "harness": "ray",
        "overlap": True,
        "parameters": 1_000_000,
        "memory_peak_bytes": (300 + 2 * micro_batch) * 2**20,
        **others,
    }


ROWS = [row(workers, batch) for workers in (1, 2, 4) for batch in (1, 4, 16, 64)]


@functools.cache
def fitted() -> PerformanceModel:
    (model,) = performance_model(frames.trials(*ROWS, workload=None, workload_layers=None))
    return model


def predict(*points: Point, **others: Any) -> pd.DataFrame:
    return fitted().predict([*points] or [Point(**others)])


def test_measured_points_are_predicted_near_their_values() -> None:
    model = fitted()
    predicted = model.predict(settings_of_rows(model.points))
    assert predicted["point_id"].tolist() == model.points["point_id"].tolist()
    for name in ("samples_per_s", "latency_s", "energy_j_per_sample"):
        assert predicted[name].tolist() == pytest.approx(model.points[name].tolist(), rel=0.06)
    measured = model.points["samples_per_s"]
    assert (predicted["samples_per_s_low"] < measured).all()
    assert (measured < predicted["samples_per_s_high"]).all()


def test_a_point_between_measured_ones_lies_in_its_intervals() -> None:
    (predicted,) = predict(workers=4, micro_batch=32, accumulation=2).to_dict("records")
    step = step_s(4, 32, 2)
    truth = {
        "samples_per_s": 256 / step,
        "latency_s": 0.9 * step,
        "energy_j_per_sample": WATTS * 4 * step / 256,
        "usd_per_million_samples": USD_PER_HOUR / 3600 * 1e6 * step / 256,
    }
    for name, value in truth.items():
        assert predicted[f"{name}_low"] < value < predicted[f"{name}_high"]
    assert predicted["point_id"] is None
    assert predicted["reason"] is None


def test_memory_grows_with_the_micro_batch_and_is_unknown_without_a_peak() -> None:
    predicted = predict(*(Point(micro_batch=batch) for batch in (4, 32, 128)))
    truth = [(300 + 2 * batch) * 2**20 for batch in (4, 32, 128)]
    assert predicted["memory_peak_bytes"].tolist() == pytest.approx(truth)
    (unmeasured,) = predict(Point(workers=3, micro_batch=16)).to_dict("records")
    assert unmeasured["samples_per_s"] > 0
    assert np.isnan(unmeasured["memory_peak_bytes"])


def test_nothing_is_predicted_of_what_was_not_varied() -> None:
    unsupported: list[tuple[dict[str, Any], str]] = [
        ({"workers": 17}, "unsupported: measured up to 4 workers; predictions reach 16"),
        ({"precision": "bf16"}, "unsupported: measured precision: fp32"),
        ({"sync": "ring"}, "unsupported: measured sync: ddp"),
    ]
    predicted = predict(*(Point(**others, micro_batch=16) for others, _ in unsupported))
    assert predicted["reason"].tolist() == [reason for _, reason in unsupported]
    assert predicted[[*PREDICTED]].isna().all(axis=None)


def test_numbers_of_the_user_reach_four_times_as_far_as_measured_and_are_above_0() -> None:
    rows = [row(1, batch, workload_width=width) for batch in (4, 16) for width in (64, 128)]
    (model,) = performance_model(frames.trials(*rows))
    asked = [{"workload_width": width} for width in (96, 512, 513, 0, -3, None, "high")]
    reasons = model.predict(asked)["reason"].tolist()
    assert reasons[:2] == [None, None]
    measured = "unsupported: measured workload.width 64.0 to 128"
    assert reasons[2:4] == [f"{measured}; predictions reach 16.0 to 512", f"{measured}, and not 0"]
    assert None not in reasons[2:]


def test_a_measured_point_is_predicted_on_its_own_nodes() -> None:
    rows = [
        row(4, batch, hosts=hosts, samples_per_s=100.0 * batch / hosts)
        for hosts in (1, 2, 4)
        for batch in (4, 16)
    ]
    (model,) = performance_model(frames.trials(*rows, workload=None, workload_layers=None))
    predicted = model.predict(settings_of_rows(model.points))
    assert predicted["nodes"].tolist() == model.points["hosts"].tolist()
    assert predicted["point_id"].tolist() == model.points["point_id"].tolist()
    asked = model.predict([{"nodes": nodes, "micro_batch": 8} for nodes in (1, 4)])
    assert asked["samples_per_s"].iloc[0] > 2 * asked["samples_per_s"].iloc[1]


def test_trials_are_thinned_without_losing_a_value_of_an_axis() -> None:
    rows = [
        row(workers, batch, accumulation, precision=precision)
        for workers in (1, 2, 4)
        for batch in (4, 8, 16)
        for accumulation in (1, 2, 4, 8)
        for precision in ("fp32", "bf16")
    ]
    (model,) = performance_model(frames.trials(row(8, 4), *rows), most_trials=37)
    assert len(model.trials) == 37
    # Every other trial would have one precision.
    assert set(model.trials["precision"].value_counts() > 12) == {True}
    assert set(model.trials["workers"]) == {1, 2, 4, 8}


def test_what_was_not_measured_is_unknown_and_lacking_settings_predict_others() -> None:
    (model,) = performance_model(frames.trials({"samples_per_s": 10.0}, {}))
    predicted = model.predict([Point(micro_batch=8)])
    assert len(model.trials) == 1
    assert predicted["reason"].isna().all()
    assert predicted["samples_per_s"].notna().all()
    assert predicted[["energy_j_per_sample", "usd_per_million_samples"]].isna().all(axis=None)


def test_each_model_and_environment_has_its_own() -> None:
    rows = [row(1, 4, env_id=env_id, model_digest=name) for env_id in "ab" for name in "xy"]
    models = performance_model(frames.trials(*rows, row(2, 4, env_id="a", model_digest="x")))
    assert [(one.env_id, one.model_digest, len(one.points)) for one in models] == [
        *(("a", "x", 2), ("a", "y", 1), ("b", "x", 1), ("b", "y", 1)),
    ]


def test_the_deviation_of_a_carried_ratio_grows_from_a_single_measured_point() -> None:
    rows = [row(1, batch, energy_j_per_sample=1.0 if batch == 4 else None) for batch in (4, 64)]
    (model,) = performance_model(frames.trials(*rows, row(2, 4, energy_j_per_sample=None)))
    predicted = model.predict([{"micro_batch": batch, "workers": 1} for batch in (4, 64)])
    widths = {
        name: np.log(predicted[f"{name}_high"] / predicted[f"{name}_low"]).to_numpy("float64")
        for name in ("energy_j_per_sample", "samples_per_s")
    }
    extra = widths["energy_j_per_sample"] ** 2 - widths["samples_per_s"] ** 2
    # Four doublings away from the point with energy: four times 5 %.
    assert extra == pytest.approx([0, (2 * 1.645 * 0.2) ** 2], abs=1e-6)
