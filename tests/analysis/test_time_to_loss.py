"""Trainings of made-up points: speed-up to the target, bounds, and samples to an equal loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from benchmarks.equal_loss import samples_to_equal_loss
from dtsweep import Sweep, SweepError
from dtsweep.analysis import Goal, recommend, time_to_loss
from dtsweep.plan.race import Race
from dtsweep.report.to_target import TargetTimes
from dtsweep.workloads import Gpt
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


def test_the_table_has_no_number_where_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        *of_all_seeds("cut", 20.0, spread=0.0, is_censored=True),
        *of_all_seeds("two", 10.0, spread=0.02, workers=2),
        *of_all_seeds("four", 8.0, spread=0.02, workers=4),
        # Launches of another question, which trained nothing.
        *(
            {
                **row,
                "target_loss": None,
                "time_to_loss_s": None,
                "is_censored": None,
                "session": "x",
            }
            | {"attempt_id": f"plain{row['repeat']}", "trial_id": f"plain{row['repeat']}"}
            for row in of_all_seeds("cut", 1.0, spread=0.0)[:2]
        ),
    ]
    TargetTimes(time_to_loss(trials(*rows))).print(console=Console(width=140))
    said = capsys.readouterr().out
    assert "nan" not in said
    assert "0 of 4" in said
    assert "against the first row of workers=2." in " ".join(said.split())


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


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("time-to-loss", "needs a loss to train to: --target LOSS"),
        (Goal(minimize="cost_to_loss"), "needs a loss to train to"),
        (Goal(minimize="final_loss"), r"needs a training: Goal\(…, train_samples=N\)"),
        (Goal(minimize="time_to_loss", target=float("nan")), "target=nan must be a loss"),
        (Goal(minimize="time_to_loss", target=1.0, train_samples=9), "exclude each other"),
        (Goal(minimize="final_loss", train_samples=0), "train_samples=0 must be a whole number"),
        (Goal(minimize="time_to_loss", target=1.0, longest_s=0), "longest_s=0 must be seconds"),
    ],
)
def test_a_training_that_can_not_be_meant_is_refused(goal: Goal | str, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        Sweep(workload=Gpt(), axes={"workers": [1]}, goal=goal)


def test_a_race_ends_what_takes_twice_the_mean_of_the_fastest_point() -> None:
    rows = [
        {"status": "ok", "is_censored": False, "time_to_loss_s": seconds, "point_id": point}
        | {"semantics": semantics}
        for point, semantics, seconds in [
            *(("a", "exact", 10.0), ("a", "exact", 14.0), ("b", "exact", 11.0)),
            # It can't be the answer.
            ("c", "local", 2.0),
        ]
    ]
    cut = {"status": "ok", "is_censored": True, "time_to_loss_s": 1.0, "point_id": "d"}
    goal = Goal(minimize="time_to_loss", target=0.5)
    race = Race(goal, [*rows, cut | {"semantics": "exact"}])
    assert race.limit_s == 22.0
    race.note("b", "exact", 5.0)
    assert race.limit_s == 16.0
    for other in (replace(goal, where="workers <= 2"), Goal(minimize="cost_to_loss", target=0.5)):
        assert Race(other, rows).limit_s == np.inf
    assert Race(replace(goal, allow=("local",)), rows).limit_s == 4.0
