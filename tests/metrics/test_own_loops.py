"""Columns of a user's training loop: samples as counted, and what its axes promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtsweep.metrics.own_loops import broken_promise, counted_columns, with_counted_samples
from dtsweep.metrics.rank_result import Measured
from dtsweep.sweep.point import Point
from dtsweep.worker.loader_watch import LoaderCount, samples_per_step


@pytest.mark.parametrize(
    ("axes", "samples", "is_kept"),
    [
        ({"micro_batch": 8, "accumulation": 2}, 16, True),
        ({"micro_batch": 8, "accumulation": 2}, 8, False),
        ({"micro_batch": 8}, 32, True),
        ({"micro_batch": 8}, 12, False),
        ({"accumulation": 4}, 12, True),
        ({"accumulation": 4}, 6, False),
        ({}, 5, True),
        ({"micro_batch": 8}, None, True),
    ],
)
def test_counted_samples_are_compared_with_what_is_known(
    axes: dict[str, int], samples: int | None, is_kept: bool
) -> None:
    point = Point(workers=2, **axes)  # type: ignore[arg-type]  # whole numbers
    assert (broken_promise(point, list(axes), samples) is None) is is_kept


def test_a_global_batch_promises_the_part_of_a_worker() -> None:
    point = Point(workers=2, micro_batch=4, accumulation=2)
    assert broken_promise(point, ["global_batch"], 8) is None
    reason = broken_promise(point, ["global_batch"], 16)
    assert reason == "the loop loads 16 samples per worker and step; global_batch=16 promises 8"


def counted(batches: int, *, steps: int) -> Any:
    return samples_per_step([LoaderCount(sizes=[8] * batches)], steps=steps)


def test_a_smaller_last_batch_of_an_epoch_and_uneven_steps_give_a_mean_and_say_so() -> None:
    count = samples_per_step([LoaderCount(sizes=[8, 8, 8, 4] * 5)], steps=10)
    assert (count.mean, count.usual) == (14, 16)
    assert count.reason == "batches have from 4 to 8 samples: rates are of their mean"
    uneven = str(counted(65, steps=30).reason)
    assert uneven.startswith("65 batches in 30 steps are not a whole number")


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
    assert counted(batches, steps=steps).mean == mean


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
        values = dict.fromkeys(names.split()) | {"samples_per_step": count} | fields
        for name, value in values.items():
            object.__setattr__(rank, name, value)
        ranks.append(rank)
    return ranks


def test_rates_are_those_of_all_counted_samples() -> None:
    ranks = of_ranks(3.0, 5.0)
    assert with_counted_samples(Point(workers=2), ranks).global_batch == 2
    columns = counted_columns(ranks, {"samples_per_s": 10.0, "energy_j_per_sample": 8.0})
    assert (columns["samples_per_s"], columns["energy_j_per_sample"]) == (40, 2)
    assert columns["global_batch"] == 8


def test_the_latency_of_local_updates_is_the_mean_step() -> None:
    row = {"step_mean_s": 3.0, "step_p50_s": 1.0}
    for semantics, latency_s in (("local", 3.0), ("exact", 1.0)):
        ranks = of_ranks(4.0, 4.0, semantics=semantics)
        assert counted_columns(ranks, row)["latency_s"] == latency_s


def test_equal_counts_are_those_of_the_point_and_unknown_ones_have_no_rate() -> None:
    equal = of_ranks(4.0, 4.0)
    assert with_counted_samples(Point(workers=2), equal).global_batch == 8
    assert counted_columns(equal, {"samples_per_s": 10.0})["samples_per_s"] == 10
    unknown = counted_columns(of_ranks(4.0, None), {"samples_per_s": 10.0})
    assert unknown["samples_per_s"] is None
    assert "global_batch" not in unknown


def test_workers_that_share_a_model_count_once() -> None:
    ranks = of_ranks(8.0, 8.0, 8.0, 8.0, model_parallel=2)
    columns = counted_columns(ranks, {"samples_per_s": 32.0, "energy_j_per_sample": 1.0})
    assert (columns["model_parallel"], columns["global_batch"]) == (2, 16)
    assert (columns["samples_per_s"], columns["energy_j_per_sample"]) == (16, 2)
    # Of one worker there is nothing to compare.
    assert counted_columns(of_ranks(8.0), {})["model_parallel"] == 1


def test_the_global_batch_is_that_of_usual_steps_where_an_epoch_ends_with_a_smaller_one() -> None:
    ranks = of_ranks(45.2, 45.2, usual_samples=48)
    columns = counted_columns(ranks, {"samples_per_s": 2.0})
    assert columns["global_batch"] == 96
    assert columns["samples_per_s"] == pytest.approx(90.4)
