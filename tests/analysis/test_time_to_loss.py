"""Trainings of made-up points: speed-up to the target, bounds, and samples to an equal loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.equal_loss import samples_to_equal_loss
from dtsweep.analysis import Goal, recommend, time_to_loss
from tests.frames import trials

SEEDS = (1, 2, 3, 4)


def training(point: str, seconds: float, seed: int, **others: Any) -> dict[str, Any]:
    usual = {"workers": 1, "micro_batch": 32, "samples_to_loss": 1000.0, "is_censored": False}
    return {
        **{"point_id": point, "repeat": seed, "session": f"s{seed}"},
        **{"trial_id": f"{point}{seed}", "attempt_id": f"{point}{seed}"},
        **{"target_loss": 0.5, "loss_by": "evaluate", "time_to_loss_s": seconds},
        **{"time_to_loss_s_error": 0.01, **usual, **others},
    }


def of_all_seeds(
    point: str, seconds: float, *, spread: float, **others: Any
) -> list[dict[str, Any]]:
    factors = np.exp(spread * np.array([-1.2, 0.4, 1.1, -0.3]))
    return [
        training(point, seconds * factor, seed, **others)
        for seed, factor in zip(SEEDS, factors, strict=True)
    ]


def test_speed_up_and_efficiency_are_those_of_the_time_to_the_target() -> None:
    rows = [
        *of_all_seeds("one", 12.0, spread=0.02),
        *of_all_seeds("two", 8.0, spread=0.03, workers=2),
        *of_all_seeds("slow", 20.0, spread=0.02, micro_batch=512, samples_to_loss=4000.0),
    ]
    found = time_to_loss(trials(*rows)).set_index("point_id")
    assert list(found.index) == ["two", "one", "slow"]
    assert found.loc["one", "speed_up"] == 1.0
    assert found.loc["two", "speed_up"] == pytest.approx(1.5, rel=0.02)
    assert found.loc["two", "efficiency"] == pytest.approx(0.75, rel=0.02)
    assert found.loc["two", "speed_up_low"] < 1.5 < found.loc["two", "speed_up_high"]
    assert found.loc["slow", "sample_ratio"] == 4.0
    assert found.loc["two", "worker_s_to_loss"] == pytest.approx(16.0, rel=0.02)


def test_what_did_not_get_there_is_never_better_than_what_did() -> None:
    bounds = of_all_seeds("late", 25.0, spread=0.0, is_censored=True)
    rows = [*of_all_seeds("one", 12.0, spread=0.05), *bounds]
    assert time_to_loss(trials(*rows)).set_index("point_id").loc["late", "censored"] == 4
    (answer,) = recommend(trials(*rows), Goal(minimize="time_to_loss"))
    assert (answer.point["point_id"], answer.answer.value) == ("one", "only_candidate")


def test_a_bound_is_no_value_and_no_base_of_a_speed_up() -> None:
    rows = [
        *of_all_seeds("cut", 20.0, spread=0.0, is_censored=True),
        *of_all_seeds("four", 10.0, spread=0.02, workers=4),
        # One of four launches was cut.
        *of_all_seeds("mixed", 19.0, spread=0.0, workers=2)[:3],
        training("mixed", 20.0, 4, workers=2, is_censored=True),
    ]
    found = time_to_loss(trials(*rows)).set_index("point_id")
    assert list(found.index) == ["four", "cut", "mixed"]
    assert found.loc["four", "speed_up"] == 1.0
    assert found.loc[["cut", "mixed"], ["time_to_loss_s", "worker_s_to_loss"]].isna().all(axis=None)
    assert found.loc[["mixed", "cut"], "trained_at_least_s"].tolist() == [20.0, 20.0]
    nobody = trials(*of_all_seeds("cut", 600.0, spread=0.0, is_censored=True))
    assert time_to_loss(nobody)["speed_up"].isna().all()
    with pytest.raises(Exception, match="no training has reached its target"):
        recommend(nobody, Goal(minimize="time_to_loss"))


def test_how_far_seeds_differ_is_not_assumed() -> None:
    # Two launches 20 % apart: rates would be decided by what is known of launches in general.
    rows = [
        *(training("a", seconds, seed) for seed, seconds in ((1, 10.0), (2, 12.5))),
        *(training("b", seconds, seed, micro_batch=64) for seed, seconds in ((1, 12.0), (2, 11.0))),
    ]
    (answer,) = recommend(trials(*rows), Goal(minimize="time_to_loss_s"))
    assert answer.answer.value == "undecided"
    assert answer.assumed_sigma is None


def test_a_cost_needs_prices_and_a_time_a_target() -> None:
    frame = trials({"point_id": "plain"})
    with pytest.raises(Exception, match="--goal time-to-loss --target LOSS"):
        recommend(frame, Goal(minimize="time_to_loss"))
    with pytest.raises(Exception, match="--prices FILE"):
        recommend(trials(*of_all_seeds("one", 12.0, spread=0.05)), Goal(minimize="cost_to_loss"))


def curve(point: str, seed: int, rate: float, *, samples: int = 1000) -> list[dict[str, Any]]:
    """A loss that falls by `exp(-rate × samples)`, evaluated every 10 samples."""
    return [
        {"attempt_id": f"{point}{seed}", "steps": step, "samples": 10 * step}
        | {"loss": float(np.exp(-rate * 10 * step))}
        for step in range(samples // 10 + 1)
    ]


def test_samples_to_an_equal_loss_are_compared_seed_by_seed() -> None:
    seeds = {1: 0.004, 2: 0.005, 3: 0.003}
    points = {"base": 1.0, "better": 1.25, "worse": 0.8}
    rows = [training(point, 1.0, seed) for point in points for seed in seeds]
    curves = [
        row
        for point, factor in points.items()
        for seed, rate in seeds.items()
        for row in curve(point, seed, rate * factor)
    ]
    found = samples_to_equal_loss(trials(*rows), pd.DataFrame(curves), baseline="base")
    found = found.set_index("point_id")
    # Rates of seeds differ by half, their ratios do not.
    assert found.loc["better", "sample_ratio"] == pytest.approx(0.8, rel=0.01)
    assert found.loc["better", "sample_ratio_high"] < 0.82
    assert found.loc["better", ["seeds", "censored"]].tolist() == [3, 0]
    # It has not got there, and counts with all that it trained.
    assert found.loc["worse", ["sample_ratio", "seeds", "censored"]].tolist() == [1.0, 3, 3]


def test_the_better_of_two_rules_is_named_in_95_percent_of_draws() -> None:
    random = np.random.default_rng(2)
    named = 0
    for _ in range(40):
        seeds = dict(enumerate(0.004 * np.exp(0.2 * random.normal(size=5))))
        factors = 1.15 * np.exp(0.04 * random.normal(size=5))
        rows = [training(point, 1.0, seed) for point in ("base", "better") for seed in seeds]
        curves = [row for seed, rate in seeds.items() for row in curve("base", seed, rate)]
        for (seed, rate), factor in zip(seeds.items(), factors, strict=True):
            curves += curve("better", seed, rate * factor)
        found = samples_to_equal_loss(trials(*rows), pd.DataFrame(curves), baseline="base")
        named += float(found["sample_ratio_high"].iloc[0]) < 1
    assert named >= 38
