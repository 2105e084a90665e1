"""The first points lie at the corners that a model needs, and are cheap."""

from __future__ import annotations

import itertools

import numpy as np

from dtsweep.predict.first_points import first_points
from dtsweep.predict.setups import Setups
from tests.setups import setups_of

GRID = list(itertools.product((1, 2, 4, 8, 16), (4, 8, 16, 32)))


def grid(*, per_node: int = 4, **categories: list[str]) -> Setups:
    places = list(itertools.product(GRID, *categories.values()))
    workers = np.array([place[0][0] for place in places])
    texts = {name: [place[1 + at] for place in places] for at, name in enumerate(categories)}
    return setups_of(
        workers=workers,
        nodes=np.ceil(workers / per_node),
        micro_batch=[place[0][1] for place in places],
        categories=texts,
    )


def test_the_fewest_workers_come_first_with_both_ends_of_the_micro_batch() -> None:
    setups = grid()
    rows = first_points(setups, setups.workers * 30)
    assert setups.workers[rows[:2]].tolist() == [1, 1]
    assert setups.micro_batch[rows[:2]].tolist() == [4, 32]
    assert len(set(rows.tolist())) == 6


def test_among_the_first_points_are_several_nodes_and_a_full_one() -> None:
    # So expensive that no distance makes up for it.
    setups = grid()
    cost = np.where((setups.nodes > 1) | (setups.workers == 4), 1e12, 1.0)
    chosen = setups.take(first_points(setups, cost))
    assert (chosen.nodes > 1).any()
    assert (chosen.workers / chosen.nodes == 4).any()


def test_cheap_points_come_before_expensive_ones() -> None:
    setups = grid()
    total = setups.workers[first_points(setups, setups.workers**10)].sum()
    assert total < setups.workers[first_points(setups, np.ones(len(setups)))].sum()


def test_a_setting_without_order_is_as_far_as_the_end_of_an_amount() -> None:
    setups = setups_of(workers=[1] * 9, micro_batch=4, categories={"mode": ["ddp"] * 8 + ["fsdp"]})
    assert 8 in first_points(setups, np.ones(9), count=3)


def test_a_seed_gives_equal_points_and_another_one_others() -> None:
    setups = grid(mode=["ddp", "fsdp", "zero1"])
    by_seed = [first_points(setups, setups.workers * 30.0, seed=seed) for seed in (0, 0, 1)]
    assert by_seed[0].tolist() == by_seed[1].tolist() != by_seed[2].tolist()


def test_only_open_candidates_are_chosen() -> None:
    setups = grid()
    is_open = setups.workers == 2
    assert (
        sorted(first_points(setups, np.ones(20), is_open=is_open))
        == np.flatnonzero(is_open).tolist()
    )
