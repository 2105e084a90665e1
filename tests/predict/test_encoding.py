"""Settings and measurements as the performance model's arrays."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from dtsweep.analysis import Study
from dtsweep.analysis.settings import settings_of_points, settings_of_rows
from dtsweep.predict.encoding import (
    Encoding,
    encoding_of,
    measured_of,
    setups_of_settings,
    usable_trials,
)
from dtsweep.predict.limits import reasons_of
from dtsweep.predict.setups import Setups
from dtsweep.sweep.point import Point
from tests import frames


def trials(*rows: dict[str, Any], **common: Any) -> pd.DataFrame:
    return usable_trials(Study(frames.trials(*rows, **common)).trials)


def setups_of(points: list[Point], encoding: Encoding) -> Setups:
    return setups_of_settings(settings_of_points(points), encoding)


def test_a_step_time_is_the_samples_of_a_step_over_the_rate() -> None:
    rows = trials(
        {"workers": 2, "micro_batch": 8, "accumulation": 4, "samples_per_s": 640.0},
        # Each worker pushes its own 8 samples: 2 steps of 8 in the 0.1 s of one.
        {"sync": "parameter_server", "workers": 2, "micro_batch": 8, "samples_per_s": 160.0},
    )
    setups, measured = measured_of(rows)
    assert measured.step_s.tolist() == pytest.approx([0.1, 0.1])
    assert setups.is_asynchronous.tolist() == [False, True]
    assert setups.servers.tolist() == [0, 1]


def test_an_error_is_a_share_of_the_rate_and_the_usual_one_where_unknown() -> None:
    errors = [{"samples_per_s_error": error} for error in (2.0, 4.0, 6.0, None)]
    rows = trials(*errors, samples_per_s=100.0, started_at=None)
    assert measured_of(rows)[1].error.tolist() == [0.02, 0.04, 0.06, 0.04]
    assert measured_of(rows[3:])[1].error.tolist() == [0.0]
    # Rows of one session share a launch.
    rows["launch"] = ["a", "b", "a", "c"]
    assert measured_of(rows)[1].launch.tolist() == [0, 1, 0, 2]


def test_settings_that_vary_are_categories_or_numbers() -> None:
    settings = ((64, "relu", 1), (128, "gelu", 2))
    rows = trials(
        *(
            {"workload_width": width, "workload_act": act, "environment": f'{{"OMP": "{threads}"}}'}
            for width, act, threads in settings
        ),
        samples_per_s=1.0,
        learning_rate=0.1,
        overlap=True,
    )
    encoding = encoding_of(rows)
    assert encoding.categories == ("workload_act",)
    assert [*encoding.numbers] == ["workload_width", "env.OMP"]


def test_a_point_has_the_setups_of_its_trial() -> None:
    local: dict[str, Any] = {"sync": "local_sgd", "sync_period": 4, "workers": 4}
    sparse: dict[str, Any] = {"compression": "topk", "compression_ratio": 0.01}
    rows = trials(
        local | {"overlap": None, "local_momentum": "keep"},
        sparse | {"overlap": True},
        **{"samples_per_s": 1.0, "workload": None, "workload_layers": None},
    )
    points = [Point(**local, micro_batch=4), Point(**sparse, micro_batch=4)]
    encoding = encoding_of(rows, settings_of_points(points))
    of_trials = measured_of(rows, encoding)[0]
    of_points = setups_of(points, encoding)
    # All points that read `overlap` have it, and as many keep their momentum.
    assert encoding.categories == ("sync", "compression")
    for name in ("workers", "nodes", "micro_batch", "period", "payload"):
        assert getattr(of_trials, name).tolist() == getattr(of_points, name).tolist()
    for name, values in of_trials.categories.items():
        assert values.tolist() == of_points.categories[name].tolist()
    # Numbers are read whatever their type in a frame.
    assert of_trials.period.tolist() == [4, 1]
    assert [row["sync_period"] for row in settings_of_rows(rows)] == [4, None]


def test_a_payload_is_declared_or_measured() -> None:
    rows = trials(
        {"bytes_sent_per_step": 1000.0},
        {"bytes_sent_per_step": 500.0, "compression": "powersgd", "compression_rank": 4},
        samples_per_s=1.0,
        workers=4,
    )
    sparse: dict[str, Any] = {"compression": "topk", "compression_ratio": 0.01}
    shares: list[tuple[dict[str, Any], float]] = [
        ({"compression": "fp16"}, 0.5),
        (sparse, 4 * 0.01),
        ({**sparse, "compression": "randomk"}, 0.01),
        # Its bytes depend on the model: half of what was sent without it.
        ({"compression": "powersgd", "compression_rank": 4}, 0.5),
        ({"compression": "powersgd", "compression_rank": 8}, 1.0),
        # A server gets one payload of each worker.
        ({**sparse, "sync": "parameter_server"}, 0.02),
    ]
    setups = setups_of([Point(workers=4, **fields) for fields, _ in shares], encoding_of(rows))
    assert setups.payload.tolist() == pytest.approx([share for _, share in shares])
    unknown = trials({"compression": "topk"}, samples_per_s=1.0)
    assert measured_of(unknown)[0].payload.tolist() == [1.0]


def test_a_payload_is_compared_with_trials_that_differ_in_the_compression_alone() -> None:
    rows = trials(
        {"sync_period": 8, "bytes_sent_per_step": 1000.0},
        {"sync_period": 16, "bytes_sent_per_step": 500.0},
        {"sync_period": 8, "bytes_sent_per_step": 500.0, "compression": "powersgd"},
        samples_per_s=1.0,
        sync="local_sgd",
    )
    assert measured_of(rows)[0].payload.tolist() == [1.0, 1.0, 0.5]


def test_averaged_state_travels_whole_next_to_what_is_compressed() -> None:
    averaged: dict[str, Any] = {"sync": "local_sgd", "optimizer": "adamw"}
    averaged |= {"local_momentum": "average"}
    sent = (
        {"bytes_sent_per_step": 3000.0},
        {"bytes_sent_per_step": 2500.0, "compression": "powersgd"},
    )
    rows = trials(*sent, samples_per_s=1.0, **averaged)
    assert measured_of(rows)[0].payload.tolist() == [3.0, 2.5]
    points = [
        Point(**averaged),
        Point(compression="fp16", **averaged),
        Point(sync="local_sgd", optimizer="adamw"),
        Point(sync="diloco", compression="fp16"),
    ]
    setups = setups_of(points, encoding_of(rows))
    assert setups.payload.tolist() == [3.0, 2.5, 1.0, 0.5]
    assert setups.period.tolist() == [8.0, 8.0, 8.0, 50.0]


def test_settings_of_the_first_steps_and_of_an_outer_step_are_no_columns() -> None:
    points = [
        Point(sync="local_sgd"),
        Point(sync="local_sgd", synchronous_steps=8),
        Point(sync="diloco", outer_learning_rate=0.5),
        Point(sync="diloco", outer_momentum=0.5),
    ]
    of_ddp = trials({}, samples_per_s=1.0, overlap=True, workload=None, workload_layers=None)
    encoding = encoding_of(of_ddp, settings_of_points(points))
    assert encoding.categories == ("sync",)
    assert not encoding.numbers


def test_a_setting_that_nothing_reads_is_not_the_value_none() -> None:
    servers = [{"sync": "parameter_server", "staleness": staleness} for staleness in (None, 0)]
    rows = trials(*servers, {"sync": "ddp"}, samples_per_s=1.0)
    texts = measured_of(rows)[0].categories["staleness"]
    assert texts.tolist() == ["none", "0", "unread"]


def test_nodes_are_those_given_else_the_most_frequent_else_filled_like_the_measured() -> None:
    points = [Point(workers=workers) for workers in (4, 8, 18)]
    one_node = encoding_of(trials({"workers": 4, "hosts": 1}, samples_per_s=1.0))
    assert setups_of(points, one_node).nodes.tolist() == [1, 1, 1]
    rows = [{"workers": workers, "hosts": hosts} for workers, hosts in ((4, 4), (4, 4), (4, 3))]
    encoding = encoding_of(trials(*rows, {"workers": 5, "hosts": 3}, samples_per_s=1.0))
    asked = [{"nodes": 3}, {}, {"workers": 7}]
    settings = [{**settings_of_points([Point(workers=4)])[0], **one} for one in asked]
    # Two workers on a node, not 5 / 3.
    assert setups_of_settings(settings, encoding).nodes.tolist() == [3, 4, 4]


def test_points_that_load_their_batches_in_another_way_are_another_setting() -> None:
    points = [Point(), Point(loader_workers=1), Point(loader_workers=1, copy_ahead=True)]
    encoding = encoding_of(trials(*settings_of_points(points), samples_per_s=1.0))
    assert encoding.categories == ("loader_workers", "prefetch", "copy_ahead")
    asked = [*points, Point(loader_workers=4)]
    measured = setups_of(points, encoding)
    reasons = reasons_of(setups_of(asked, encoding), measured)
    assert reasons == (None, None, None, "unsupported: measured loader_workers: 1, none")


def test_a_slow_ranks_factor_is_known_and_no_setting_to_learn() -> None:
    points = [Point(workers=2), *(Point(workers=workers, slow_rank=2) for workers in (2, 3))]
    encoding = encoding_of(trials(*settings_of_points(points), samples_per_s=1.0))
    assert (encoding.categories, encoding.numbers) == ((), {})
    assert setups_of(points, encoding).slowness.tolist() == [1, 2, 2]
