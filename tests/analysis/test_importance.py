"""Importance of swept axes for the step time, by a functional analysis of variance."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dtsweep.analysis import importance
from dtsweep.analysis.importance import shares_of, together
from tests import frames


def row(step_s: float, **settings: Any) -> dict[str, Any]:
    samples = settings.get("workers", 1) * settings.get("micro_batch", 4)
    return {
        "samples_per_s": samples / step_s,
        "samples_per_s_error": 0.002 * samples / step_s,
        "harness": "ray",
        "overlap": True,
        **settings,
    }


def by_axes(rows: list[dict[str, Any]]) -> dict[str, dict[Any, Any]]:
    """Rows of importance by their axes, in their order."""
    return {row["axes"]: row for row in importance(frames.trials(*rows)).to_dict("records")}


def test_the_axis_that_changes_the_step_time_most_comes_first() -> None:
    rows = [
        row(0.01 * batch**0.8 * (1.2 if sync == "ring" else 1.0), micro_batch=batch, sync=sync)
        for batch in (4, 16, 64, 256)
        for sync in ("ddp", "ring")
    ]
    shares = by_axes(rows)
    assert next(iter(shares)) == "micro_batch"
    assert sum(row["share"] for row in shares.values()) == pytest.approx(1)
    assert shares["micro_batch"]["share"] > 0.9
    assert 0 < shares["sync"]["share"] < 0.1
    assert {"micro_batch × sync", "rest"} <= {*shares}
    assert all(row["is_identifiable"] for row in shares.values())


def test_axes_that_were_varied_together_count_as_one() -> None:
    rows = [
        row(0.01 * batch, micro_batch=batch, workers=batch // 4, precision=precision)
        for batch in (4, 8, 16, 32)
        for precision in ("fp32", "bf16")
    ]
    shares = by_axes(rows)
    assert not shares["workers and micro_batch"]["is_identifiable"]
    assert shares["precision"]["is_identifiable"]
    assert sum(row["share"] for row in shares.values()) == pytest.approx(1)


def test_few_points_or_one_axis_have_no_importance() -> None:
    assert by_axes([row(0.1, micro_batch=2**number) for number in range(8)]) == {}
    few = [row(0.1, micro_batch=batch, workers=workers) for batch in (4, 8) for workers in (1, 2)]
    assert by_axes(few) == {}


def test_fields_of_a_mode_belong_to_sync() -> None:
    rows = [
        row(0.1 / (period or 1), micro_batch=batch, sync=sync, sync_period=period)
        for batch in (4, 16, 64)
        for sync, period in (("ddp", None), ("local_sgd", 2), ("local_sgd", 8))
    ]
    shares = by_axes(rows)
    assert {"sync", "micro_batch", "micro_batch × sync"} == {*shares} - {"rest"}


def test_nodes_are_an_axis_where_as_many_workers_ran_on_different_numbers() -> None:
    rows = [
        row(0.01 * batch**0.3 * hosts, micro_batch=batch, workers=workers, hosts=hosts)
        for batch in (4, 64)
        for workers in (4, 8)
        for hosts in (1, 2, 4)
    ]
    shares = by_axes(rows)
    assert shares["nodes"]["share"] > 0.3
    assert shares["nodes"]["is_identifiable"]


def test_shares_equal_brute_force_and_add_up_to_one() -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4))
    shares = shares_of(values)
    means = [np.mean([values[i, j] for i in range(2)], axis=0) for j in range(3)]
    second = np.array([mean.mean() for mean in means])
    assert shares.main[1] == pytest.approx(second.var() / values.var())
    third = np.array([values[:, :, k].mean() for k in range(4)])
    pair = [
        values[:, j, k].mean() - second[j] - third[k] + values.mean()
        for j, k in itertools.product(range(3), range(4))
    ]
    assert shares.pairs[1, 2] == pytest.approx(np.var(pair) / values.var())
    assert shares.main.sum() + shares.pairs.sum() + shares.rest == pytest.approx(1)


def test_axes_that_were_varied_together_are_one_group() -> None:
    grid = np.array([*itertools.product([0.0, 1], [0.0, 1, 2])])
    first, second = grid[:, :1], grid[:, 1:]
    assert together([first, second]) == [(0,), (1,)]
    assert together([first, second, 3 * second + 1]) == [(0,), (1, 2)]
    # A sum of two: none of the three can be told from the others.
    assert together([first, second, first + second]) == [(0, 1, 2)]
