from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import scaling, worthwhile
from dtsweep.errors import SweepError
from tests.analysis.ladders import ladder, published
from tests.frames import trials


def only(frame: pd.DataFrame, **asked: Any) -> pd.Series[Any]:
    (row,) = worthwhile(frame, **asked).to_dict("records")
    return pd.Series(row)


def repeated(rates: dict[int, float], *, error: float = 0.005) -> pd.DataFrame:
    return ladder(rates, launches=3, error=error, rng=np.random.default_rng(8))


def test_a_gain_is_what_each_worker_more_adds_of_what_one_of_the_base_does() -> None:
    rows = scaling(ladder({2: 20.0, 4: 36.0, 8: 52.0}))
    # 8 more each a worker of 10, then 4.
    assert rows["gain"].tolist()[1:] == pytest.approx([0.8, 0.4])
    assert np.isnan(rows["gain"].iloc[0])


def test_the_gain_of_the_first_step_has_the_interval_of_its_speed_up() -> None:
    row = scaling(repeated({1: 100.0, 2: 120.0}, error=0.3)).iloc[1]
    assert row["gain_low"] == pytest.approx(row["speed_up_low"] - 1)
    assert row["gain_high"] == pytest.approx(row["speed_up_high"] - 1)


def test_the_size_from_which_the_next_step_adds_too_little_is_named() -> None:
    frame = repeated({1: 100.0, 2: 190.0, 4: 340.0, 8: 400.0, 16: 420.0})
    found = only(frame)
    assert found[["pays_to", "pays_to_low", "pays_to_high"]].tolist() == [4, 4, 4]
    assert [found["verdict"], found["pays_at_least"], found["next_size"]] == ["found", 4, 8]
    assert pd.isna(found["verdict_reason"])
    assert [found["sizes"], found["base"], found["largest"]] == [5, 1, 16]
    # The caller says what one more is worth.
    assert [only(frame, worth=worth)["pays_to"] for worth in (0.8, 0.1)] == [2, 8]


@pytest.mark.slow
def test_a_step_near_the_threshold_leaves_an_interval() -> None:
    found = only(repeated({1: 100.0, 2: 190.0, 4: 290.0, 8: 310.0}, error=0.02))
    assert found[["pays_to_low", "pays_to_high"]].tolist() == [2, 4]
    assert [found["verdict"], found["pays_at_least"]] == ["found", 2]


def test_where_each_step_pays_it_is_not_within_the_sizes_measured() -> None:
    found = only(repeated({1: 100.0, 2: 190.0, 4: 370.0}))
    assert [found["verdict"], found["largest"]] == ["beyond_sizes", 4]
    assert found[["pays_to", "pays_at_least", "next_size"]].isna().all()


def test_where_launches_differ_too_much_nothing_is_said() -> None:
    found = only(repeated({1: 100.0, 2: 150.0, 4: 250.0}, error=0.3))
    assert [found["verdict"], found["pays_at_least"]] == ["not_distinguishable", 1]
    assert pd.isna(found["pays_to"])


def test_one_launch_each_is_unknown() -> None:
    found = only(ladder(published()))
    assert [found["verdict"], found["verdict_reason"]] == ["unknown", "too_few_launches"]
    assert found[["pays_to", "pays_at_least"]].isna().all()


def test_nodes_are_counted_where_asked_for() -> None:
    rates = {4: 100.0, 8: 195.0, 16: 220.0}
    frame = repeated(rates).assign(hosts=lambda rows: rows["workers"] // 4)
    found = only(frame, per="node")
    assert found[["verdict", "pays_to", "next_size"]].tolist() == ["found", 2, 4]


def test_a_lower_throughput_of_more_workers_doesnt_pay() -> None:
    falling = repeated({1: 100.0, 2: 133.0, 4: 108.0, 8: 62.0})
    assert only(falling, worth=0)["pays_to"] == 2


@pytest.mark.parametrize("worth", [-0.1, 50, float("nan")])
def test_a_worth_that_is_no_share_is_refused(worth: float) -> None:
    with pytest.raises(SweepError, match="from 0 to 1"):
        worthwhile(ladder({1: 1.0}), worth=worth)


def test_one_size_or_no_ok_trial_gives_no_row() -> None:
    assert worthwhile(ladder({2: 100.0})).empty
    assert "verdict" in worthwhile(trials({"status": "oom_device"}))


def test_cautions_of_all_sizes_stand_on_the_group() -> None:
    frame = ladder({1: 100.0, 2: 190.0, 4: 350.0})
    frame.at[2, "flags"] = ["drift"]
    assert worthwhile(frame)["caution"].tolist() == ["drift"]
