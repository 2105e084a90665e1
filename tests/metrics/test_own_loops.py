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


def counted(sizes: list[int], *, steps: int) -> Any:
    return samples_per_step([LoaderCount(sizes=list(sizes))], steps=steps)


def test_a_smaller_last_batch_of_an_epoch_gives_a_mean() -> None:
    count = counted([8, 8, 8, 4] * 5, steps=10)
    assert (count.mean, count.usual) == (14, 16)
    assert count.reason == "batches have from 4 to 8 samples: rates are of their mean"


def test_batches_that_were_loaded_ahead_count_for_no_step() -> None:
    assert counted([8] * 42, steps=20).mean == 16
    # Such as an epoch of 9 batches, with 4 in a step and 1 in its last.
    uneven = counted([8] * 63, steps=21)
    assert uneven.mean == 24
    uneven = counted([8] * 65, steps=30)
    assert uneven.mean == pytest.approx(8 * 65 / 30)
    assert str(uneven.reason).startswith("65 batches in 30 steps are not a whole number")


def test_few_steps_do_not_tell_batches_that_were_loaded_ahead() -> None:
    assert counted([8, 8], steps=1).mean == 16
    assert counted([8, 8, 8], steps=2).mean is None
    assert counted([8], steps=2).mean is None


def test_the_usual_step_has_as_many_batches_as_most() -> None:
    ends = np.cumsum([4, 4, 1] * 7).tolist()
    short_epochs = LoaderCount(sizes=[8] * ends[-1], ends=ends)
    assert samples_per_step([short_epochs], steps=21).usual == 32
    ends = np.cumsum([3, 2, 1] * 5).tolist()
    runs_ahead = LoaderCount(sizes=[8] * ends[-1], ends=ends)
    assert samples_per_step([runs_ahead], steps=15).usual == 16


def of_ranks(*counts: float | None) -> list[Measured]:
    ranks = []
    for count in counts:
        rank = object.__new__(Measured)
        names = ("samples_reason", "gradients_agree", "parameters_agree", "model_parallel")
        for name in (*names, "usual_samples"):
            object.__setattr__(rank, name, None)
        object.__setattr__(rank, "samples_per_step", count)
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
        ranks = of_ranks(4.0, 4.0)
        object.__setattr__(ranks[0], "semantics", semantics)
        assert counted_columns(ranks, row)["latency_s"] == latency_s


def test_equal_counts_are_those_of_the_point_and_unknown_ones_have_no_rate() -> None:
    equal = of_ranks(4.0, 4.0)
    assert with_counted_samples(Point(workers=2), equal).global_batch == 8
    assert counted_columns(equal, {"samples_per_s": 10.0})["samples_per_s"] == 10
    unknown = counted_columns(of_ranks(4.0, None), {"samples_per_s": 10.0})
    assert unknown["samples_per_s"] is None
    assert "global_batch" not in unknown


def test_workers_that_share_a_model_count_once() -> None:
    ranks = of_ranks(8.0, 8.0, 8.0, 8.0)
    for rank in ranks:
        object.__setattr__(rank, "model_parallel", 2)
    columns = counted_columns(ranks, {"samples_per_s": 32.0, "energy_j_per_sample": 1.0})
    assert (columns["model_parallel"], columns["global_batch"]) == (2, 16)
    assert (columns["samples_per_s"], columns["energy_j_per_sample"]) == (16, 2)
    # Of one worker there is nothing to compare.
    assert counted_columns(of_ranks(8.0), {})["model_parallel"] == 1


def test_the_global_batch_is_that_of_usual_steps_where_an_epoch_ends_with_a_smaller_one() -> None:
    ranks = of_ranks(45.2, 45.2)
    for rank in ranks:
        object.__setattr__(rank, "usual_samples", 48)
    columns = counted_columns(ranks, {"samples_per_s": 2.0})
    assert columns["global_batch"] == 96
    assert columns["samples_per_s"] == pytest.approx(90.4)
