from __future__ import annotations

import pytest

from dtsweep.analysis import over_launches
from dtsweep.analysis.naming import find_point
from dtsweep.errors import SweepError
from tests.frames import trials

POINTS = over_launches(
    trials(
        {"point_id": "a1f0", "workers": 1, "micro_batch": 4},
        {"point_id": "a1c9", "workers": 2, "micro_batch": 4},
        {"point_id": "b7d2", "workers": 2, "micro_batch": 16},
        {"point_id": "b7d2", "workers": 2, "micro_batch": 16, "hosts": 2},
        {
            "point_id": "c3aa",
            "workers": 2,
            "sync": "local_sgd",
            "sync_period": 8,
            "precision": "bf16",
        },
        {
            "point_id": "d4bb",
            "workers": 2,
            "sync": "local_sgd",
            "sync_period": 8,
            "workload_layers": 6,
        },
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
