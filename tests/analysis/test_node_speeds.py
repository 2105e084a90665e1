from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtsweep.analysis import node_speeds
from dtsweep.analysis.node_speeds import speeds_of
from dtsweep.errors import SweepError
from dtsweep.results.store import Results
from tests.rates import chance

FACTORS = {"a": 1.0, "b": 0.9, "c": 0.5, "d": 0.45, "e": 0.2}


def ranks_of(
    mixes: Sequence[Sequence[str]],
    *,
    noise: float = 0.0,
    factors: dict[str, float] = FACTORS,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and ranks: each trial on the nodes of a mix, with work of its own size.

    A node has a rank for each mention.
    """
    rng = np.random.default_rng(seed)
    trials = pd.DataFrame(
        {"attempt_id": map(str, range(len(mixes))), "launch": map(str, range(len(mixes)))}
    )
    rows = [
        {
            "attempt_id": str(trial),
            "node": node,
            "device": "CPU",
            "work_s": work / factors[node] * factor,
        }
        for trial, mix in enumerate(mixes)
        for work in (rng.uniform(0.01, 2),)
        for node, factor in zip(mix, np.exp(rng.normal(0, noise, len(mix))), strict=True)
    ]
    return trials, pd.DataFrame(rows, columns=["attempt_id", "node", "device", "work_s"])


def speeds(mixes: Sequence[Sequence[str]], **made: Any) -> pd.DataFrame:
    return speeds_of(*ranks_of(mixes, **made)).set_index("node")


@given(
    mixes=st.lists(
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=4), min_size=1, max_size=8
    )
)
@settings(max_examples=30, deadline=None)
def test_known_factors_come_back_whatever_mix_of_nodes_measured_which_trial(
    mixes: list[list[str]],
) -> None:
    found = speeds(mixes)
    sets = {node: {node} for node in FACTORS}
    for _ in FACTORS:
        for mix in mixes:
            linked = set().union(*(sets[node] for node in mix))
            sets |= dict.fromkeys(linked, linked)
    assert sorted(found.index) == sorted(set().union(*mixes))
    for node, row in found.iterrows():
        if len(sets[node]) == 1:
            assert np.isnan(row["speed"])
            assert row["reason"] == "no_shared_trial"
            continue
        fastest = max(sets[node], key=FACTORS.get)
        assert row["fastest"] == fastest
        assert row["speed"] == pytest.approx(FACTORS[node] / FACTORS[fastest])
        assert pd.isna(row["reason"])


def test_nodes_that_no_trial_had_together_are_compared_by_a_third_one() -> None:
    found = speeds([["a", "b"], ["b", "c"]])
    assert found["speed"].to_dict() == pytest.approx({"a": 1.0, "b": 0.9, "c": 0.5})
    assert found["trials"].to_dict() == {"a": 1, "b": 2, "c": 1}
    # As many trials as speeds need, and none to tell how far they agree.
    assert found.loc[["b", "c"], ["speed_low", "speed_high"]].isna().all(axis=None)


def test_sets_of_nodes_that_nothing_links_have_a_fastest_node_each() -> None:
    found = speeds([["a", "c"], ["b", "e"]])
    assert found["fastest"].to_dict() == {"a": "a", "c": "a", "b": "b", "e": "b"}
    assert found["speed"].to_dict() == pytest.approx({"a": 1.0, "c": 0.5, "b": 1.0, "e": 0.2 / 0.9})


def share_of_factors_held(count: int) -> float:
    """Share of draws in which the intervals of all nodes hold."""
    covered = []
    for seed in range(count):
        found = speeds([["a", "b", "c"]] * 4 + [["a", "c"]] * 2, noise=0.05, seed=seed)
        true = pd.Series(FACTORS)[found.index] / FACTORS[found["fastest"].iloc[0]]
        covered.append(
            ((found["speed_low"] <= true + 1e-9) & (true <= found["speed_high"] + 1e-9)).all()
        )
    return float(np.mean(covered))


def test_intervals_cover_the_true_factors_95_times_in_100() -> None:
    """`benchmarks/coverage.py` has the rates of many draws, of the next two claims as well."""
    assert share_of_factors_held(60) >= 0.95 - chance(0.95, 60)


def share_called_slower(count: int) -> float:
    """Share of draws in which one of equal nodes is called slower."""
    equal = dict.fromkeys("abcdef", 1.0)
    significant = [
        (speeds([list(equal)] * 4, noise=0.05, factors=equal, seed=seed)["speed_high"] < 1).any()
        for seed in range(count)
    ]
    return float(np.mean(significant))


def test_of_equal_nodes_none_is_called_slower_more_often_than_5_times_in_100() -> None:
    assert share_called_slower(50) <= 0.05 + chance(0.05, 50)


def share_held_by_launches(launches: int, *, count: int) -> float:
    """Share of draws in which an interval holds though each launch has something of its own."""
    rng, covered = np.random.default_rng(0), []
    each = 6
    for seed in range(count):
        trials, ranks = ranks_of(
            [["a", "b"]] * (launches * each), noise=0.01, seed=seed, factors={"a": 1.0, "b": 1.0}
        )
        trials["launch"] = [str(number // each) for number in range(len(trials))]
        own = {
            (str(launch), node): rng.normal(0, 0.03) for launch in range(launches) for node in "ab"
        }
        launch = ranks["attempt_id"].map(trials.set_index("attempt_id")["launch"])
        ranks["work_s"] *= [np.exp(own[key]) for key in zip(launch, ranks["node"], strict=True)]
        covered.append(speeds_of(trials, ranks)["speed_high"].iloc[1] >= 1)
    return float(np.mean(covered))


@pytest.mark.parametrize("launches", [2, 4])
def test_intervals_hold_where_a_launch_has_something_of_its_own_in_all_its_trials(
    launches: int,
) -> None:
    assert share_held_by_launches(launches, count=50) >= 0.95 - chance(0.95, 50)


def test_one_launch_gives_a_speed_without_an_interval() -> None:
    trials, ranks = ranks_of([["a", "b"]] * 5, noise=0.01)
    found = speeds_of(trials.assign(launch="0"), ranks)
    assert found["speed"].notna().all()
    assert found["speed_low"].isna().iloc[1]


def test_a_table_in_the_place_of_results_is_refused_in_one_line() -> None:
    with pytest.raises(SweepError, match="give it the place of the results"):
        node_speeds(pd.DataFrame())  # type: ignore[arg-type]


def test_ranks_of_one_node_count_as_one_and_trials_on_one_node_compare_nothing() -> None:
    found = speeds([["a", "a", "a", "c"], ["a", "a"]])
    assert found["speed"].to_dict() == pytest.approx({"a": 1.0, "c": 0.5})
    assert found["trials"].to_dict() == {"a": 1, "c": 1}


def test_two_device_models_on_a_node_are_two_rows() -> None:
    trials, ranks = ranks_of([["a", "c"]] * 2)
    ranks["node"] = "one"
    ranks["device"] = ["H100", "A100"] * 2
    found = speeds_of(trials, ranks).set_index("device")
    assert found["speed"].to_dict() == pytest.approx({"H100": 1.0, "A100": 0.5})


def test_ranks_whose_work_is_unknown_compare_nothing() -> None:
    trials, ranks = ranks_of([["a", "c"]])
    found = speeds_of(trials, ranks.assign(work_s=[0.1, None]))
    assert found["speed"].isna().all()
    assert found["reason"].notna().all()


def test_speeds_are_read_from_results_by_their_ok_trials_alone(tmp_path: Path) -> None:
    store = Results(tmp_path)
    for number, (status, seconds) in enumerate([("ok", 0.2), ("ok", 0.2), ("timeout", 9.0)]):
        ranks = [
            {"rank": rank, "node": node, "device": "CPU", "work_s": work}
            for rank, (node, work) in enumerate({"fast": 0.1, "slow": seconds}.items())
        ]
        trial = {
            "attempt_id": f"a{number}",
            "trial_id": f"t{number}",
            "point_id": "p",
            "status": status,
        }
        store.commit(
            trial | {"workers": 2, "semantics": "exact", "session": f"s{number}"}, ranks=ranks
        )
    found = node_speeds(tmp_path).set_index("node")
    assert found["speed"].to_dict() == pytest.approx({"fast": 1.0, "slow": 0.5})
    assert found["launches"].to_dict() == {"fast": 2, "slow": 2}
