from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import scaling, worthwhile
from dtsweep.errors import SweepError
from dtsweep.predict import usl
from tests.analysis.ladders import ladder, published, universal
from tests.frames import trials

SIZES = (1, 2, 4, 8, 16)


def law(frame: pd.DataFrame, **asked: Any) -> pd.Series[Any]:
    """The only row of the law."""
    (row,) = usl(frame, **asked).to_dict("records")
    return pd.Series(row)


@pytest.mark.parametrize(
    ("contention", "coherency", "base"), [(0.0, 0.05, 1), (0.5, 1e-5, 2), (0.05, 0.002, 3)]
)
def test_a_ladder_made_by_the_law_gives_its_parameters_back_from_any_base(
    contention: float, coherency: float, base: int
) -> None:
    sizes = [base * n for n in SIZES]
    found = law(ladder(universal(sizes, contention=contention, coherency=coherency)))
    assert found["contention"] == pytest.approx(contention, abs=1e-4)
    assert found["coherency"] == pytest.approx(coherency, abs=1e-5)
    assert found["residual"] < 1e-5


def test_too_few_sizes_are_said_and_not_guessed_from() -> None:
    row = law(ladder(universal((1, 2, 4), contention=0.1), strong=True))
    assert [row["sizes"], row["reason"], row["sizes_needed"]] == [3, "too_few_sizes", 4]
    assert row[["contention", "coherency", "peak", "pays_to", "residual"]].isna().all()


def test_one_size_or_no_ok_trial_gives_no_row() -> None:
    failed = {"status": "oom_device"}
    found = usl(trials(failed, {"workers": 2, "samples_per_s": 100.0}))
    assert found.empty
    assert {"contention_low", "peak", "pays_to", "reason"} <= set(found)
    assert worthwhile(ladder({2: 100.0})).empty
    assert "verdict" in worthwhile(trials(failed))


@pytest.mark.slow
def test_a_law_that_misses_by_more_than_launches_differ_is_contradicted_and_knows_less() -> None:
    rng = np.random.default_rng(5)
    bent = universal(SIZES, contention=0.02) | {4: 200.0}
    made = universal(SIZES, contention=0.02)
    found, held = (
        law(ladder(rates, strong=True, launches=3, error=0.005, rng=rng)) for rates in (bent, made)
    )
    assert [found["contradicted"], found["errors"]] == [True, "residuals"]
    assert [held["contradicted"], held["errors"]] == [False, "launches"]
    widths = [row["contention_high"] - row["contention_low"] for row in (held, found)]
    assert widths[1] > 5 * widths[0]


def test_nothing_is_extrapolated_from_a_law_that_is_contradicted() -> None:
    rng = np.random.default_rng(5)
    logarithmic = {n: 100 * n / (1 + 0.03 * np.log2(n)) for n in SIZES}
    found = law(ladder(logarithmic, launches=3, error=0.001, rng=rng))
    assert found["contradicted"]
    assert found["pays_to_extrapolates"]
    assert found[["pays_to", "pays_to_low", "pays_to_high"]].isna().all()


def test_the_peak_is_where_the_law_is_highest_and_says_whether_it_was_measured() -> None:
    within = law(ladder(universal((*SIZES, 32), contention=0.03, coherency=0.002)))
    assert within["peak"] == pytest.approx((0.97 / 0.002) ** 0.5, rel=1e-3)
    assert not within["peak_extrapolates"]
    assert law(ladder(universal(SIZES, contention=0.03, coherency=0.002)))["peak_extrapolates"]


def test_a_coherency_that_noise_hides_has_no_peak() -> None:
    rng = np.random.default_rng(6)
    found = law(ladder(universal(SIZES, contention=0.03), launches=3, error=0.02, rng=rng))
    assert found["coherency_low"] == 0
    assert found[["peak", "peak_low", "peak_high", "peak_extrapolates"]].isna().all()


def test_pays_to_is_the_first_size_from_which_one_more_adds_too_little_by_the_law() -> None:
    made = {"contention": 0.05, "coherency": 0.001}
    found = law(ladder(universal((*SIZES, 32), **made)), worth=0.3)
    rate = universal(range(1, 40), **made)
    assert found["pays_to"] == next(n for n in range(1, 39) if rate[n + 1] - rate[n] < 30)
    assert not found["pays_to_extrapolates"]
    assert law(ladder(universal((1, 2, 3, 4), contention=0.01)), worth=0.3)["pays_to_extrapolates"]


def test_what_always_adds_enough_has_no_end() -> None:
    found = law(ladder({n: 100.0 * n for n in SIZES}, strong=True))
    assert found["contention"] == found["coherency"] == 0
    assert found[["pays_to", "pays_to_high", "pays_to_extrapolates"]].isna().all()


@pytest.mark.slow
def test_faster_than_linear_is_no_contention_below_zero() -> None:
    rng = np.random.default_rng(7)
    found = law(
        ladder({n: 100 * n**1.1 for n in SIZES}, strong=True, launches=3, error=0.01, rng=rng)
    )
    assert found["contention"] == found["contention_low"] == 0
    assert found["contradicted"]


def test_a_published_ladder_is_far_from_its_peak_and_the_fit_says_that_it_extrapolates() -> None:
    found = law(ladder(published()))
    assert found["contention"] == pytest.approx(0.0017, abs=0.0001)
    assert found["coherency_low"] == 0
    assert found["pays_to"] > 128
    assert found["pays_to_extrapolates"]
    assert found["errors"] == "residuals"


def test_cautions_of_all_sizes_stand_on_the_law() -> None:
    frame = ladder(universal(SIZES, contention=0.1))
    frame.at[2, "flags"] = ["drift"]
    assert usl(frame)["caution"].tolist() == ["drift"]


# What pays by the sizes measured


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
    falling = universal((1, 2, 4, 8), contention=0.1, coherency=0.2)
    assert only(repeated(falling), worth=0)["pays_to"] == 2


@pytest.mark.parametrize("worth", [-0.1, 50, float("nan")])
def test_a_worth_that_is_no_share_is_refused(worth: float) -> None:
    for question in (worthwhile, usl):
        with pytest.raises(SweepError, match="from 0 to 1"):
            question(ladder({1: 1.0}), worth=worth)
