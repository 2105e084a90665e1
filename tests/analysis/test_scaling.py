from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import difference, scaling, setting_columns
from dtsweep.errors import SweepError
from dtsweep.sweep.point_axes import FIELD_TYPES
from tests.analysis.ladders import PUBLISHED, ladder, published
from tests.frames import trials
from tests.report.study import canary


def point(workers: int, micro_batch: int, samples_per_s: float, **fields: Any) -> dict[str, Any]:
    known = {"workers": workers, "micro_batch": micro_batch, "samples_per_s": samples_per_s}
    return known | {"global_batch": workers * micro_batch} | fields


def test_a_published_ladder_has_the_published_efficiency() -> None:
    known = pd.read_csv(PUBLISHED)
    rows = scaling(ladder(published()))
    assert rows["kind"].unique().tolist() == ["weak"]
    assert rows["workers"].tolist() == [1, 8, 16, 32, 64, 128]
    # Its authors cut some digits off where others are rounded.
    efficiencies = known["published_efficiency"].fillna(1.0).tolist()
    assert rows["efficiency"].tolist() == pytest.approx(efficiencies, abs=1e-3)


def windows(workers: int, rate: float, *, share: float = 0.03, **fields: Any) -> dict[str, Any]:
    """A point with the interval of its window."""
    ends = {"samples_per_s_low": rate * (1 - share), "samples_per_s_high": rate * (1 + share)}
    return point(workers, 4, rate, **ends, session="s", **fields)


def test_a_ladder_has_points_of_one_grid_whose_data_parallelism_differs() -> None:
    # Two grids of 2 and 4 workers, each sharing a model as the arguments promise it, or as found.
    for names in ({}, {"workload_args.tp": 1}), ({}, {}):
        rows = scaling(
            trials(
                *(point(n, 4, 10.0 * n, model_parallel=1, **names[1]) for n in (2, 4)),
                *(
                    point(n, 4, 8.0 * n, model_parallel=2, **dict.fromkeys(names[1], 2))
                    for n in (2, 4)
                ),
            )
        )
        weak = rows[rows["kind"] == "weak"]
        assert weak["workers"].tolist() == [2, 4, 2, 4]
        assert weak["model_parallel"].tolist() == [1, 1, 2, 2]
        assert weak["speed_up"].tolist() == pytest.approx([1, 2, 1, 2])
    # Unknown ones count as one worker per model, as their samples do.
    unknown = scaling(trials(point(1, 4, 10, model_parallel=1), point(2, 4, 18)))
    assert unknown["workers"].tolist() == [1, 2]


def test_single_launches_have_the_interval_of_their_windows_and_of_the_drift() -> None:
    rows = scaling(trials(windows(1, 10), windows(2, 16)))
    assert rows["interval"].tolist() == ["launches", "launch"]
    half = np.hypot(0.03, 0.03)
    ends = rows[["speed_up_low", "speed_up_high"]].iloc[1].tolist()
    assert ends == pytest.approx([1.6 * np.exp(-half), 1.6 * np.exp(half)])
    assert rows["efficiency_low"].iloc[1] == pytest.approx(0.8 * np.exp(-half))
    assert rows["caution"].tolist() == ["", ""]
    watched = (canary("s", 1.0, started_at=0), canary("s", 1.3, started_at=1))
    drifted = scaling(trials(windows(1, 10), windows(2, 16), *watched))
    assert drifted["speed_up_low"].iloc[1] == pytest.approx(1.6 / 1.3, rel=0.01)
    assert drifted["caution"].iloc[1] == "machine_drift"
    above = scaling(trials(windows(1, 10), windows(2, 22)))
    assert above["caution"].iloc[1] == "above_linear"
    # What doubts the base doubts each speed-up over it.
    doubted = scaling(trials(windows(1, 10, flags=["drift"]), windows(2, 16, flags=["unstable"])))
    assert doubted["caution"].tolist() == ["drift", "drift unstable"]


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


def test_workers_that_exchange_nothing_are_no_scaling() -> None:
    alone = point(2, 4, 20, semantics="not_exchanged")
    assert scaling(trials(point(1, 4, 10), point(2, 4, 16)))["workers"].tolist() == [1, 2]
    assert scaling(trials(point(1, 4, 10), alone)).empty


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


def test_points_that_differ_in_another_field_are_never_compared() -> None:
    shape = {"workers", "micro_batch", "accumulation"}
    types = trials({}).dtypes
    others = [
        {name: 99 if pd.api.types.is_numeric_dtype(types[name]) else "another"}
        for name in (*set(FIELD_TYPES) - shape, "workload_layers", "env_id", "model_digest")
    ]
    frame = trials(point(1, 4, 10), *(point(2, 4, 20, **other) for other in others))
    assert scaling(frame).empty
    assert len(scaling(trials(point(1, 4, 10), point(2, 4, 20)))) == 2


def test_one_worker_count_and_trials_that_are_not_ok_give_no_row() -> None:
    assert scaling(trials(point(2, 4, 10), point(2, 8, 20))).empty
    rows = scaling(trials(point(1, 4, 10), point(2, 4, 20, status="timeout")))
    assert rows.empty
    assert "efficiency" in rows


def test_a_mode_without_global_batch_scales_weakly_alone() -> None:
    stale = {"sync": "parameter_server", "semantics": "stale", "global_batch": None}
    shapes = ((1, 16, 10), (2, 8, 20), (2, 16, 20))
    rows = scaling(trials(*(point(*shape, **stale) for shape in shapes)))
    assert rows["kind"].unique().tolist() == ["weak"]


def test_nodes_are_compared_with_equally_many_workers_each() -> None:
    frame = trials(point(1, 4, 10, hosts=1), point(4, 4, 40, hosts=1), point(8, 4, 60, hosts=2))
    rows = scaling(frame, per="node")
    assert rows["workers"].tolist() == [4, 8]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 1.5])
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.75])
    fuller = trials(point(2, 4, 20, hosts=1), point(8, 4, 60, hosts=2))
    assert scaling(fuller, per="node").empty
    with pytest.raises(SweepError, match="per='worker' or per='node'"):
        scaling(frame, per="gpu")  # type: ignore[arg-type]  # what a user may type


def test_repeats_are_averaged_before_they_are_compared() -> None:
    base = [point(1, 4, rate, point_id="one", repeat=n) for n, rate in enumerate([8, 12])]
    rows = scaling(trials(*base, point(2, 4, 20)))
    assert rows["launches"].tolist() == [2, 1]
    # As `difference` compares them, by logarithms: 20 to the geometric mean of 8 and 12.
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 20 / 96**0.5])


def test_a_null_environment_is_one_of_its_own() -> None:
    frame = trials(*(point(n, 4, 90 * n, env_id=env) for env in ("a", None) for n in (1, 2)))
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


def test_the_fastest_number_of_hosts_stands_for_a_worker_count() -> None:
    spread = [point(2, 4, rate, hosts=hosts, point_id="two") for hosts, rate in ((1, 18), (2, 15))]
    rows = scaling(trials(point(1, 4, 10), *spread))
    assert rows["hosts"].tolist() == [1, 1]
    assert rows["speed_up"].tolist() == pytest.approx([1.0, 1.8])


def test_settings_are_the_fields_of_a_point_and_of_its_workload() -> None:
    columns = setting_columns(trials({"workload_digest": "d"}))
    assert set(columns) == {*FIELD_TYPES, "environment", "workload", "workload_layers"}


def test_a_speed_up_that_launches_say_nothing_of_has_no_interval() -> None:
    # Two launches of another point, far apart, are all that is known of the noise.
    noisy = [point(1, 16, rate, session=f"n{rate}", point_id="n") for rate in (1e-100, 1e100)]
    apart = [point(w, 4, rate, session=f"s{w}") for w, rate in ((1, 10), (2, 16))]
    with np.errstate(all="raise"):
        row = scaling(trials(*noisy, *apart)).set_index("workers").loc[2]
    assert row["speed_up"] == pytest.approx(1.6)
    assert np.isnan(row["speed_up_low"]) and np.isnan(row["gain_high"])
