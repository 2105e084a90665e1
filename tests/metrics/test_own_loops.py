"""Columns of a user's training loop: samples as counted, and what its axes promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtsweep.loops.loader_watch import LoaderCount, samples_per_step
from dtsweep.metrics.breakdown import Row
from dtsweep.metrics.own_loops import broken_promise, counted_columns, with_counted_samples
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.point import Point
from dtsweep.workloads.own import Script


@pytest.mark.parametrize(
    ("fields", "axes", "samples", "is_kept"),
    [
        ({"micro_batch": 8, "accumulation": 2}, None, 16, True),
        ({"micro_batch": 8, "accumulation": 2}, None, 8, False),
        ({"micro_batch": 8}, None, 32, True),
        ({"micro_batch": 8}, None, 12, False),
        ({"accumulation": 4}, None, 12, True),
        ({"accumulation": 4}, None, 6, False),
        ({}, None, 5, True),
        ({"micro_batch": 8}, None, None, True),
        # A global batch promises the part of a worker.
        ({"micro_batch": 4, "accumulation": 2}, ["global_batch"], 8, True),
    ],
)
def test_counted_samples_are_compared_with_what_is_known(
    fields: dict[str, Any], axes: list[str] | None, samples: int | None, is_kept: bool
) -> None:
    point = Point(workers=2, **fields)
    assert (broken_promise(point, axes or list(fields), samples) is None) is is_kept


def test_a_broken_promise_is_said_with_its_numbers() -> None:
    reason = broken_promise(Point(workers=2, micro_batch=8), ["global_batch"], 16)
    assert reason == "the loop loads 16 samples per worker and step; global_batch=16 promises 8"


def test_a_smaller_last_batch_of_an_epoch_and_uneven_steps_give_a_mean_and_say_so() -> None:
    count = samples_per_step([LoaderCount(sizes=[8, 8, 8, 4] * 5)], steps=10)
    assert (count.mean, count.usual) == (14, 16)
    assert count.reason == "batches have from 4 to 8 samples: rates are of their mean"
    uneven = samples_per_step([LoaderCount(sizes=[8] * 65)], steps=30)
    assert str(uneven.reason).startswith("65 batches in 30 steps are not a whole number")


@pytest.mark.parametrize(
    ("batches", "steps", "mean"),
    [
        (42, 20, 16),
        # Such as an epoch of 9 batches, with 4 in a step and 1 in its last.
        (63, 21, 24),
        (65, 30, pytest.approx(8 * 65 / 30)),
        # Few steps do not tell batches that were loaded ahead.
        (2, 1, 16),
        (3, 2, None),
        (1, 2, None),
    ],
)
def test_batches_that_were_loaded_ahead_count_for_no_step(
    batches: int, steps: int, mean: object
) -> None:
    assert samples_per_step([LoaderCount(sizes=[8] * batches)], steps=steps).mean == mean


@pytest.mark.parametrize(("epochs", "usual"), [([4, 4, 1] * 7, 32), ([3, 2, 1] * 5, 16)])
def test_the_usual_step_has_as_many_batches_as_most(epochs: list[int], usual: int) -> None:
    ends = np.cumsum(epochs).tolist()
    loader = LoaderCount(sizes=[8] * ends[-1], ends=ends)
    assert samples_per_step([loader], steps=len(epochs)).usual == usual


def of_ranks(*counts: float | None, **fields: object) -> list[Measured]:
    names = "samples_reason gradients_agree parameters_agree model_parallel usual_samples"
    ranks = []
    for count in counts:
        rank = object.__new__(Measured)
        values = dict.fromkeys(names.split()) | {"samples_per_step": count, "untaken": ()} | fields
        for name, value in values.items():
            object.__setattr__(rank, name, value)
        ranks.append(rank)
    return ranks


def counted(ranks: list[Measured], row: Row) -> Row:
    """Columns of a loop that promises no grid."""
    point = Point(workers=len(ranks), sync=AS_WRITTEN)
    return counted_columns(with_counted_samples(point, ranks), ranks, row)


@pytest.mark.parametrize(
    ("counts", "fields", "factor", "global_batch"),
    [
        ((3.0, 5.0), {}, 4, 8),
        ((4.0, 4.0), {}, 1, 8),
        # Workers that share a model count once.
        ((8.0,) * 4, {"model_parallel": 2}, 0.5, 16),
        # The last batch of an epoch is smaller: the global batch is that of usual steps.
        ((45.2, 45.2), {"usual_samples": 48}, 45.2, 96),
        ((4.0, None), {}, None, None),
    ],
)
def test_rates_are_those_of_all_counted_samples(
    counts: tuple[float | None, ...], fields: dict[str, Any], factor: Any, global_batch: int
) -> None:
    row = {"samples_per_s": 10.0, "energy_j_per_sample": 8.0, "flags": []}
    columns = counted(of_ranks(*counts, **fields), row)
    assert columns.get("global_batch") == global_batch
    if factor is None:
        assert columns["samples_per_s"] is columns["energy_j_per_sample"] is None
        return
    assert columns["samples_per_s"] == pytest.approx(10 * factor)
    assert columns["energy_j_per_sample"] == pytest.approx(8 / factor)


def test_a_point_has_the_samples_of_a_worker_where_all_have_as_many() -> None:
    for counts, global_batch in (((3.0, 5.0), 2), ((4.0, 4.0), 8)):
        ranks = of_ranks(*counts)
        assert with_counted_samples(Point(workers=2), ranks).global_batch == global_batch


def test_ranks_per_model_are_stored_and_of_one_worker_there_is_nothing_to_compare() -> None:
    row: Row = {"flags": []}
    assert counted(of_ranks(8.0, 8.0, model_parallel=2), row)["model_parallel"] == 2
    assert counted(of_ranks(8.0), row)["model_parallel"] == 1


@pytest.mark.parametrize(
    ("counts", "fields", "rate"),
    [
        # 2 models of 2 workers, 8 samples each: what the row has by grid is right.
        ((8.0,) * 4, {"model_parallel": 2}, 10.0),
        # How they share a model is unknown: the promise holds.
        ((8.0,) * 4, {}, 10.0),
        # The row has 1 sample for each model, as where workers have other numbers of them.
        ((8.0, None, 8.0, None), {}, 80.0),
        ((8.0, None, 4.0, None), {}, None),
    ],
)
def test_samples_of_a_promised_grid_count_once_for_each_model(
    counts: tuple[float | None, ...], fields: dict[str, Any], rate: float | None, tmp_path: Path
) -> None:
    reasons = [None if count else "no DataLoader" for count in counts]
    ranks = [
        of_ranks(count, samples_reason=reason, **fields)[0]
        for count, reason in zip(counts, reasons, strict=True)
    ]
    point = with_counted_samples(promised(tmp_path, workers=4, tp=2), ranks)
    columns = counted_columns(point, ranks, {"samples_per_s": 10.0, "flags": []})
    assert columns["samples_per_s"] == rate
    assert columns.get("global_batch") == (16 if rate else None)
    assert columns["model_parallel"] == 2
    assert (columns["samples_reason"] is None) == (rate is not None)


def promised(folder: Path, *, workers: int, tp: int) -> Point:
    (folder / "train.py").touch()
    script = Script(str(folder / "train.py"), names={"tensor_parallel": "tp"}, args={"tp": tp})
    return Point(workload=script, workers=workers, sync=AS_WRITTEN)


def test_a_setting_that_no_data_loader_of_any_worker_has_is_flagged() -> None:
    ranks = of_ranks(8.0, 8.0, untaken=["num_workers", "pin_memory"])
    assert counted(ranks, {"flags": ["drift"]})["flags"] == ["drift", "loader_unchanged"]
    # A stage of a pipeline without a loader is not one that leaves the loop's as they are.
    assert counted([ranks[0], *of_ranks(8.0)], {"flags": []})["flags"] == []


def test_the_latency_of_local_updates_is_the_mean_step() -> None:
    row = {"step_mean_s": 3.0, "step_p50_s": 1.0, "flags": []}
    for semantics, latency_s in (("local", 3.0), ("exact", 1.0)):
        ranks = of_ranks(4.0, 4.0, semantics=semantics)
        assert counted(ranks, row)["latency_s"] == latency_s
