from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from dtsweep.analysis import over_launches, scaling, training_time
from dtsweep.errors import SweepError
from dtsweep.report.times import TrainingTimes
from tests.analysis.ladders import ladder, published
from tests.frames import trials
from tests.report.study import sweep


def point(workers: int, samples_per_s: float, **fields: Any) -> dict[str, Any]:
    shape = {"micro_batch": 4, "global_batch": 4 * workers}
    return {"workers": workers, "samples_per_s": samples_per_s} | shape | fields


def test_a_published_ladder_as_the_table_that_studies_print() -> None:
    rows = training_time(ladder(published()), samples=1_281_167)
    assert rows["workers"].tolist() == [1, 8, 16, 32, 64, 128]
    assert rows["training_time_s"].round(1).tolist() == [1469.2, 191.8, 99.9, 53.7, 27.1, 14.3]
    assert rows["efficiency"].round(3).tolist() == [1.0, 0.957, 0.919, 0.855, 0.846, 0.804]
    assert rows["kind"].unique().tolist() == ["weak"]


def test_the_time_is_that_of_the_samples_at_the_measured_rate_and_its_interval() -> None:
    frame = ladder({1: 10.0, 2: 19.0}, launches=3, error=0.01, rng=np.random.default_rng(1))
    rows, points = training_time(frame, samples=1000), over_launches(frame).sort_values("workers")
    for end, of in {"": "", "_low": "_high", "_high": "_low"}.items():
        expected = 1000 / points[f"samples_per_s{of}"]
        assert rows[f"training_time_s{end}"].tolist() == pytest.approx(expected.tolist())
    ladders = scaling(frame)
    for name in ("speed_up", "speed_up_low", "efficiency_high"):
        assert rows[name].tolist() == pytest.approx(ladders[name].tolist())


def test_one_launch_has_no_interval_of_the_speed_up_and_the_kind_of_the_rates_own() -> None:
    known = {"samples_per_s_low": 9.0, "samples_per_s_high": 11.0}
    (row,) = training_time(trials(point(2, 10, **known)), samples=90).to_dict("records")
    assert [row["training_time_s_low"], row["training_time_s_high"]] == pytest.approx([90 / 11, 10])
    assert row["interval"] == "launch"
    rows = training_time(trials(point(1, 10), point(2, 20)), samples=90)
    assert rows["speed_up_low"].isna().tolist() == [False, True]


def test_the_fastest_point_of_each_number_of_workers_stands_for_it() -> None:
    frame = trials(
        point(1, 10),
        point(1, 12, micro_batch=16, global_batch=16),
        point(2, 20),
        point(2, 15, sync="ring"),
    )
    rows = training_time(frame, samples=120)
    assert rows[["workers", "micro_batch", "training_time_s"]].to_numpy().tolist() == [
        [1, 16, 10.0],
        [2, 4, 6.0],
    ]
    assert rows["kind"].tolist() == ["free", "free"]


def test_what_is_no_substitute_stands_in_a_table_of_its_own() -> None:
    others = [{"semantics": "stale"}, {"model_digest": "n"}, {"env_id": "f"}]
    usual = {"semantics": "exact", "model_digest": "m", "env_id": "e"}
    frame = trials(*(point(n, 10 * n, **usual | kind) for kind in ({}, *others) for n in (2, 1)))
    rows = training_time(frame, samples=100)
    assert rows["group"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows["workers"].tolist() == [1, 2] * 4
    assert rows["speed_up"].tolist() == pytest.approx([1, 2] * 4)
    assert len(rows[["semantics", "model_digest", "env_id"]].drop_duplicates()) == 4


def test_one_number_of_workers_has_no_kind_and_a_rate_that_may_be_nothing_no_longest_time() -> None:
    known = {"samples_per_s_low": -3.0, "samples_per_s_high": 20.0}
    (row,) = training_time(trials(point(1, 10, **known)), samples=100).to_dict("records")
    assert [row["training_time_s"], row["training_time_s_low"], row["speed_up"]] == [10, 5, 1]
    assert np.isnan(row["training_time_s_high"])
    assert pd.isna(row["kind"])


def test_failures_and_canaries_are_in_no_table() -> None:
    rows = training_time(
        trials(point(2, 99, status="hang"), point(4, 99, role="canary")), samples=100
    )
    assert rows.empty
    assert {"training_time_s_low", "energy_j", "speed_up_high", "kind"} <= set(rows)


def test_energy_is_that_of_the_samples_by_devices_and_by_cpus() -> None:
    known = {"energy_j_per_sample": 3.0, "cpu_energy_j_per_sample": 0.5}
    for env_id in ("e", None):
        frame = trials(point(1, 20, **known), point(2, 30), env_id=env_id)
        rows = training_time(frame, samples=1000)
        assert rows["energy_j"].tolist() == pytest.approx([3000, np.nan], nan_ok=True)
        assert rows["cpu_energy_j"].tolist() == pytest.approx([500, np.nan], nan_ok=True)


def test_cpu_energy_does_not_depend_on_the_steps_that_are_left_out() -> None:
    # 500 J in a window of 10 s; of 10,000 samples half were left out as a warm-up.
    for window_s in (10.0, 5.0):
        known = {"cpu_energy_j": 500.0, "window_s": window_s, "cpu_energy_j_per_sample": 0.05}
        rows = training_time(trials(point(1, 1000, **known)), samples=1_000_000)
        assert rows["cpu_energy_j"].tolist() == pytest.approx([50_000])


@pytest.mark.parametrize("samples", [0, -1, float("nan")])
def test_an_amount_of_data_is_above_nothing(samples: float) -> None:
    with pytest.raises(SweepError, match="such as 50000"):
        training_time(trials({}), samples=samples)  # type: ignore[arg-type]  # what a user may give


# In a report


def printed(rows: pd.DataFrame, *, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        TrainingTimes(rows).print(console=console)
    return capture.get()


def test_a_published_ladder_is_printed_as_studies_do() -> None:
    lines = printed(
        training_time(ladder(published(), energy_j_per_sample=0.3), samples=1_281_167)
    ).splitlines()
    assert lines[1] == "Training on 1,281,167 samples · exact updates · weak scaling · ddp"
    assert lines[2].split() == ["micro_batch", "×", "time", "samples", "speed-", "effi-", "devices"]
    assert lines[3].split() == ["workers", "accumulation", "min", "/s", "up", "ciency", "%", "kJ"]
    assert lines[-5].split() == ["128", "4", "×", "1", "0.2378", "89,783", "102.96", "80", "384.4"]


def test_the_tables_of_all_semantics_fit_and_say_that_one_launch_each_was_measured() -> None:
    text = printed(training_time(sweep(), samples=50_000))
    assert max(map(len, text.splitlines())) <= 80
    titles = re.findall(r"^Training on 50,000 samples · (\w+) updates", text, re.MULTILINE)
    assert titles == ["exact", "stale", "local"]
    assert "within one launch" in text
    assert "A speed-up without ± is of too few launches" in text


def test_prices_of_nodes_give_the_cost_of_that_time() -> None:
    frame = ladder(published())
    rows = training_time(frame.assign(usd_per_hour=frame["workers"] * 36.0), samples=1_281_167)
    cost = rows["training_time_s"] * rows["workers"] / 100
    assert rows["cost_usd"].to_list() == pytest.approx(cost.to_list())
    assert "cost" in printed(rows)
    assert "cost" not in printed(training_time(frame, samples=1_281_167))


def test_launches_give_halves_and_the_base_has_none() -> None:
    frame = ladder({1: 100.0, 2: 190.0}, launches=4, error=0.01, rng=np.random.default_rng(1))
    text = printed(training_time(frame, samples=10_000))
    base, double = text.splitlines()[5:7]
    assert base.count("±") == 2
    assert double.count("±") == 4
    assert "within one launch" not in text
    assert "too few launches" not in text


@pytest.mark.parametrize(
    ("samples", "unit", "time"),
    [(5_000, "s", "50.00"), (36_000, "min", "6.000"), (10**6, "h", "2.778")],
)
def test_times_are_in_the_unit_that_their_longest_has_two_of(
    samples: int, unit: str, time: str
) -> None:
    lines = printed(training_time(ladder({1: 100.0}), samples=samples)).splitlines()
    assert lines[3].split()[2] == unit
    assert lines[5].split()[4] == time


def test_without_ok_trials_that_is_said() -> None:
    assert printed(training_time(trials({"status": "hang"}), samples=9)) == (
        "No trial ended ok, so there is no training time.\n"
    )


def test_programs_get_the_rows_with_null_for_the_unknown() -> None:
    rows = training_time(ladder({1: 10.0, 2: 18.0}), samples=90)
    base, double = json.loads(json.dumps(TrainingTimes(rows).as_json()))["training_time"]
    assert [base["training_time_s"], double["training_time_s"]] == [9, 5]
    assert [base["workers"], double["workers"], double["samples"]] == [1, 2, 90]
    assert (double["speed_up_low"], double["energy_j"]) == (None, None)
