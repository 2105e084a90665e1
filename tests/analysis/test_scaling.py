from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import difference, scaling, setting_columns
from dtsweep.errors import SweepError
from dtsweep.sweep.point import FIELD_TYPES
from tests.frames import trials

LADDER = Path(__file__).parents[1] / "data" / "ladder" / "resnet50_v100.csv"


def point(workers: int, micro_batch: int, samples_per_s: float, **fields: Any) -> dict[str, Any]:
    return {
        "workers": workers,
        "micro_batch": micro_batch,
        "global_batch": workers * micro_batch,
        "samples_per_s": samples_per_s,
    } | fields


def test_a_published_ladder_has_the_published_efficiency() -> None:
    ladder = pd.read_csv(LADDER)
    rungs = zip(ladder["gpus"].tolist(), ladder["images_per_s"].tolist(), strict=True)
    rows = scaling(trials(*(point(gpus, 64, images_per_s) for gpus, images_per_s in rungs)))
    assert rows["kind"].unique().tolist() == ["weak"]
    assert rows["workers"].tolist() == [1, 8, 16, 32, 64, 128]
    # Its authors cut some digits off where others are rounded.
    published = ladder["published_efficiency"].fillna(1.0).tolist()
    assert rows["efficiency"].tolist() == pytest.approx(published, abs=1e-3)


def windows(workers: int, rate: float, *, share: float = 0.03, **fields: Any) -> dict[str, Any]:
    """A point with the interval of its window."""
    ends = {"samples_per_s_low": rate * (1 - share), "samples_per_s_high": rate * (1 + share)}
    return point(workers, 4, rate, **ends, session="s", **fields)


def canary(step_s: float, at: int) -> dict[str, Any]:
    watch = {"role": "canary", "point_id": "watch", "session": "s", "half_width": 0.005}
    return watch | {"step_mean_s": step_s, "started_at": at}


def test_single_launches_have_the_interval_of_their_windows_and_of_the_drift() -> None:
    rows = scaling(trials(windows(1, 10), windows(2, 16)))
    assert rows["interval"].tolist() == ["launches", "launch"]
    half = np.hypot(0.03, 0.03)
    ends = rows[["speed_up_low", "speed_up_high"]].iloc[1].tolist()
    assert ends == pytest.approx([1.6 * np.exp(-half), 1.6 * np.exp(half)])
    assert rows["efficiency_low"].iloc[1] == pytest.approx(0.8 * np.exp(-half))
    assert rows["caution"].tolist() == ["", ""]
    drifted = scaling(trials(windows(1, 10), windows(2, 16), canary(1.0, 0), canary(1.3, 1)))
    assert drifted["speed_up_low"].iloc[1] == pytest.approx(1.6 / 1.3, rel=0.01)
    assert drifted["caution"].iloc[1] == "machine_drift"


def test_workers_that_exchange_nothing_are_no_scaling() -> None:
    alone = point(2, 4, 20, semantics="not_exchanged")
    assert scaling(trials(point(1, 4, 10), point(2, 4, 16)))["workers"].tolist() == [1, 2]
    assert scaling(trials(point(1, 4, 10), alone)).empty


def test_a_speed_up_above_the_number_of_workers_is_doubtful() -> None:
    assert scaling(trials(windows(1, 10), windows(2, 22)))["caution"].iloc[1] == "above_linear"
    assert scaling(trials(windows(1, 10), windows(2, 20)))["caution"].iloc[1] == ""


def test_weak_scaling_needs_equal_micro_batch_and_accumulation() -> None:
    rows = scaling(trials(point(1, 4, 10), point(2, 4, 16), point(2, 16, 40, accumulation=3)))
    assert rows["kind"].tolist() == ["weak", "weak"]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 1.6])
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.8])


def test_the_fastest_batch_shape_stands_for_a_worker_count_in_strong_scaling() -> None:
    slow = point(1, 4, 5, accumulation=4, global_batch=16)
    rows = scaling(trials(slow, point(1, 16, 10), point(4, 4, 30)))
    assert rows["kind"].tolist() == ["strong", "strong"]
    assert rows["micro_batch"].tolist() == [16, 4]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 3.0])
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.75])


def test_the_base_is_the_smallest_world_of_the_group() -> None:
    rows = scaling(trials(point(8, 4, 60), point(2, 4, 20)))
    assert rows["base"].tolist() == [2, 2]
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.75])


@pytest.mark.parametrize(
    "field",
    [
        *sorted(set(FIELD_TYPES) - {"workers", "micro_batch", "accumulation"}),
        "workload_layers",
        "env_id",
    ],
)
def test_points_that_differ_in_another_field_are_never_compared(field: str) -> None:
    numbers = pd.api.types.is_numeric_dtype(trials({})[field].dtype)
    values = [1, 2] if numbers else ["a", "b"]
    frame = trials(point(1, 4, 10, **{field: values[0]}), point(2, 4, 20, **{field: values[1]}))
    assert scaling(frame).empty


def test_one_worker_count_gives_no_row() -> None:
    assert scaling(trials(point(2, 4, 10), point(2, 8, 20))).empty


def test_a_mode_without_global_batch_scales_weakly_alone() -> None:
    stale = {"sync": "parameter_server", "semantics": "stale", "global_batch": None}
    rows = scaling(
        trials(point(1, 16, 10, **stale), point(2, 8, 20, **stale), point(2, 16, 20, **stale))
    )
    assert rows["kind"].unique().tolist() == ["weak"]


def test_nodes_are_compared_with_equally_many_workers_each() -> None:
    frame = trials(point(1, 4, 10, hosts=1), point(4, 4, 40, hosts=1), point(8, 4, 60, hosts=2))
    rows = scaling(frame, per="node")
    assert rows["workers"].tolist() == [4, 8]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 1.5])
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.75])


def test_fuller_nodes_are_not_taken_for_more_nodes() -> None:
    assert scaling(trials(point(2, 4, 20, hosts=1), point(8, 4, 60, hosts=2)), per="node").empty


def test_repeats_are_averaged_before_they_are_compared() -> None:
    base = [point(1, 4, rate, point_id="one", repeat=n) for n, rate in enumerate([8, 12])]
    rows = scaling(trials(*base, point(2, 4, 20)))
    assert rows["launches"].tolist() == [2, 1]
    # As `difference` compares them, by logarithms: 20 to the geometric mean of 8 and 12.
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 20 / 96**0.5])


def test_launches_that_measured_only_one_of_two_worlds_do_not_bend_the_speed_up() -> None:
    # Three launches measured both points, three later ones, on a faster machine, the smaller world
    # alone.
    both = [
        point(w, 4, rate, point_id=str(w), session=f"s{n}")
        for n in range(3)
        for w, rate in ((1, 10), (2, 16 + n / 9))
    ]
    later = [point(1, 4, 14, point_id="1", session=f"t{n}") for n in range(3)]
    rows = scaling(trials(*both, *later)).set_index("workers")
    assert rows.loc[2, "speed_up"] == pytest.approx(1.61, abs=0.01)


def test_a_null_environment_is_one_of_its_own() -> None:
    rows = [
        {"workers": workers, "samples_per_s": 90 * workers, "step_p50_s": 0.1} for workers in (1, 2)
    ]
    frame = trials(*rows, *({**row, "env_id": None} for row in rows))
    frame["env_id"] = frame["env_id"].astype(object).where(frame["env_id"].notna(), None)
    assert scaling(frame)["speed_up"].tolist() == [1, 2, 1, 2]


def test_a_speed_up_has_the_interval_of_the_difference() -> None:
    rows = [
        point(workers, 4, rate, point_id=str(workers), session=f"{workers}.{n}")
        for workers, rates in ((1, [10, 10.1, 9.9]), (2, [16, 16.5, 15.5]), (4, [32, 30, 31]))
        for n, rate in enumerate(rates)
    ]
    found = scaling(trials(*rows)).set_index("workers")
    for workers in (2, 4):
        expected = difference(trials(*rows), str(workers), "1").iloc[0]
        factor = expected["ratio_high"] / expected["ratio"]
        speed_up = found.loc[workers, "speed_up"]
        bounds = found.loc[workers, ["speed_up_low", "speed_up_high"]].tolist()
        assert bounds == pytest.approx([speed_up / factor, speed_up * factor])
        shares = found.loc[workers, ["efficiency_low", "efficiency_high"]].tolist()
        assert shares == pytest.approx([bound / workers for bound in bounds])
    assert found.loc[1, ["speed_up_low", "speed_up_high"]].tolist() == [1, 1]


def test_a_speed_up_of_one_launch_has_no_interval() -> None:
    rows = scaling(trials(point(1, 4, 10), point(2, 4, 20)))
    assert rows["speed_up_low"].tolist()[0] == 1
    assert rows["efficiency_high"].isna().tolist() == [False, True]


def test_the_fastest_number_of_hosts_stands_for_a_worker_count() -> None:
    spread = [point(2, 4, rate, hosts=hosts, point_id="two") for hosts, rate in ((1, 18), (2, 15))]
    rows = scaling(trials(point(1, 4, 10), *spread))
    assert rows["hosts"].tolist() == [1, 1]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 1.8])


def test_trials_that_are_not_ok_do_not_scale() -> None:
    rows = scaling(trials(point(1, 4, 10), point(2, 4, 20, status="timeout")))
    assert rows.empty
    assert "efficiency" in rows


def test_an_unknown_unit_is_refused_by_name() -> None:
    with pytest.raises(SweepError, match="per='worker' or per='node'"):
        scaling(trials({}), per="gpu")  # type: ignore[arg-type]  # what a user may type


def test_settings_are_the_fields_of_a_point_and_of_its_workload() -> None:
    columns = setting_columns(trials({"workload_digest": "d"}))
    assert set(columns) == {*FIELD_TYPES, "environment", "workload", "workload_layers"}


def test_worlds_that_train_another_model_are_no_ladder() -> None:
    rows = [
        {"workers": n, "step_p50_s": 0.1, "samples_per_s": 40 * n, "model_digest": str(n)}
        for n in (1, 2)
    ]
    assert scaling(trials(*rows)).empty
    assert len(scaling(trials(*(row | {"model_digest": "1"} for row in rows)))) > 0
