"""Configurations as a user asks for them."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis import over_launches
from dtsweep.analysis.naming import find_point
from dtsweep.errors import SweepError
from dtsweep.predict.asked import asked_of, read_settings
from tests import frames


@functools.cache
def points() -> pd.DataFrame:
    return over_launches(
        frames.trials(
            {"sync": "local_sgd", "sync_period": 4, "workers": 2, "samples_per_s": 30.0},
            {"sync": "ddp", "overlap": False, "workers": 2, "samples_per_s": 20.0},
            {"sync": "ddp", "overlap": False, "workers": 1, "samples_per_s": 10.0},
            harness="ray",
            environment='{"OMP_NUM_THREADS": "1"}',
        )
    )


def settings_of(**asked: Any) -> dict[str, Any]:
    return dict(asked_of(asked, points()).settings)


def test_settings_that_are_not_given_are_those_of_the_fastest_point_that_has_the_others() -> None:
    assert settings_of(micro_batch=8)["sync"] == "local_sgd"
    assert asked_of({"sync": "ddp"}, points()).base["point_id"] == "point1"
    assert asked_of({"sync": "ddp", "workers": 1}, points()).base["point_id"] == "point2"
    asked = settings_of(sync="ddp", micro_batch=8)
    assert (asked["workers"], asked["micro_batch"], asked["overlap"]) == (2, 8, False)
    assert (asked["workload_layers"], asked["env.OMP_NUM_THREADS"]) == (4, "1")
    # Fields of the workload and variables have the names of axes.
    named = settings_of(**{"workload.layers": 8, "env.OMP_NUM_THREADS": "2"})
    assert (named["workload_layers"], named["env.OMP_NUM_THREADS"]) == (8, "2")
    # Configurations that differ in a setting have all others in common.
    for workers in (1, 2, 4):
        one = asked_of({"sync": "ddp", "workers": workers}, points(), varied={"workers"})
        assert one.base["point_id"] == "point1"


def test_another_mode_has_its_own_defaults() -> None:
    asked = settings_of(sync="parameter_server", staleness=2)
    assert (asked["staleness"], asked["shards"], asked["sync_period"]) == (2, 1, None)
    assert asked["overlap"] is None


def test_what_a_row_of_a_table_leaves_open_stays_unknown() -> None:
    rows = over_launches(frames.trials({"compression": "topk", "samples_per_s": 1.0}))
    assert asked_of({"workers": 4}, rows).settings["compression_ratio"] is None
    assert asked_of({"compression_ratio": 0.1}, rows).settings["compression_ratio"] == 0.1


def test_settings_that_a_table_lacks_are_not_invented() -> None:
    row = {"sync": "horovod", "learning_rate": None, "precision": None, "placement": None}
    rows = over_launches(frames.trials({**row, "samples_per_s": 1.0}))
    for given in ({"workers": 4}, {"workers": 4, "sync": "horovod"}):
        settings = asked_of(given, rows).settings
        assert (settings["sync"], settings["workers"]) == ("horovod", 4)
        assert [settings[name] for name in ("learning_rate", "precision", "placement")] == [
            None
        ] * 3
    with pytest.raises(SweepError, match="horovd"):
        asked_of({"sync": "horovd"}, rows)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"wrkers": 2}, "setting 'wrkers' is unknown; did you mean 'workers'?"),
        ({"workload.layer": 2}, "did you mean 'workload.layers'?"),
        ({"sync": "ddp", "sync_period": 2}, "ddp has no sync_period; leave it out"),
        ({"workers": "two"}, "workers='two' must be a whole number"),
        ({"sync": "tree", "compression": "int8"}, "no such point can be measured: "),
    ],
)
def test_what_no_point_can_have_is_an_error(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError) as error:
        settings_of(**asked)
    assert message in str(error.value)


def test_several_values_are_several_configurations() -> None:
    read = read_settings(["micro_batch=8 workers=2,4 sync=ddp", "micro_batch=8 sync=ring"])
    assert [one.get("workers") for one in read] == [2, 4, None]
    assert [one["sync"] for one in read] == ["ddp", "ddp", "ring"]
    with pytest.raises(SweepError, match="workers is set twice"):
        read_settings(["workers=2 workers=4"])
    many = ",".join(map(str, range(1, 40)))
    with pytest.raises(SweepError, match="more than 1,000 configurations"):
        read_settings([f"workers={many} micro_batch={many}"])


# A point by its name or settings

LOCAL = {"workers": 2, "sync": "local_sgd", "sync_period": 8}
POINTS = over_launches(
    frames.trials(
        {"point_id": "a1f0", "workers": 1, "micro_batch": 4},
        {"point_id": "a1c9", "workers": 2, "micro_batch": 4},
        {"point_id": "b7d2", "workers": 2, "micro_batch": 16},
        {"point_id": "b7d2", "workers": 2, "micro_batch": 16, "hosts": 2},
        {"point_id": "c3aa", **LOCAL, "precision": "bf16"},
        {"point_id": "d4bb", **LOCAL, "workload_layers": 6},
        latency_s=1.0,
        samples_per_s=1.0,
    )
)


@pytest.mark.parametrize(
    ("text", "point_id"),
    [
        ("b", "b7d2"),
        ("a1c", "a1c9"),
        ("workers=1", "a1f0"),
        ("workers=2 sync=ddp micro_batch=16", "b7d2"),
        ("workers = 2 micro_batch<8 sync=ddp", "a1c9"),
        ("workers=2 and sync=ddp and micro_batch=16", "b7d2"),
        ("precision=bf16", "c3aa"),
        ("sync=local_sgd workload.layers=6", "d4bb"),
        ("sync_period=8 precision!=bf16", "d4bb"),
    ],
)
def test_a_point_is_found_by_the_beginning_of_its_name_or_by_enough_of_its_settings(
    text: str, point_id: str
) -> None:
    assert find_point(POINTS, text) == point_id


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "workers=2",
            "4 points have 'workers=2'; add what tells them apart: micro_batch .4, 16. and "
            "sync .ddp, local_sgd. and precision .bf16, fp32.$",
        ),
        ("e", "no ok trial of point 'e'; give a point_id, its beginning, or settings"),
        ("", "no ok trial of point ''"),
        ("a1", "2 points begin with 'a1': a1c9, a1f0; give more of it"),
        ("workers=3", "no measured point has 'workers=3': workers is 1, 2"),
        ("workers=1 sync=local_sgd", "workers is 1, 2; sync is ddp, local_sgd"),
        ("workers=2 sync=ddp", "2 points have .*; add what tells them apart: micro_batch .4, 16.$"),
        ("sync=local_sgd", "what tells them apart: precision .bf16, fp32.$"),
        ("worker=2", "'worker' is not a column of points .*; did you mean 'workers'?"),
        ("sync_period=16", "sync_period is 8, none"),
    ],
)
def test_what_names_no_point_or_several_is_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(SweepError, match=said):
        find_point(POINTS, text)
