from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from dtsweep.analysis import training_time
from dtsweep.report.times import TrainingTimes
from tests.analysis.ladders import ladder, published
from tests.frames import trials
from tests.report.study import sweep


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
    priced = frame.assign(usd_per_hour=frame["workers"] * 36.0)
    rows = training_time(priced, samples=1_281_167)
    assert rows["cost_usd"].to_list() == pytest.approx(
        (rows["training_time_s"] * rows["workers"] / 100).to_list()
    )
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
    values = json.loads(
        json.dumps(TrainingTimes(training_time(ladder({1: 10.0, 2: 18.0}), samples=90)).as_json())
    )
    (base, double) = values["training_time"]
    assert [base["training_time_s"], double["training_time_s"]] == [9, 5]
    assert [base["workers"], double["workers"], double["samples"]] == [1, 2, 90]
    assert double["speed_up_low"] is None
    assert double["energy_j"] is None
