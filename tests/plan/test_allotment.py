"""Nodes of a session: placements, whole nodes, shared ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.plan.allotment import NodePool, Places
from dtsweep.sweep.point import World


def world(workers: int, placement: str = "pack") -> World:
    return World(workers=workers, placement=placement, environment=())


def test_a_session_takes_whole_nodes_although_it_needs_less() -> None:
    pool = NodePool(rooms={"a": 2, "b": 2})
    assert pool.places_for(world(1), taken=[]) == {"a": 1}
    assert pool.places_for(world(1), taken=[{"a": 1}]) == {"b": 1}
    assert pool.places_for(world(3), taken=[{"a": 1}]) is None


def test_where_nodes_are_shared_the_emptiest_is_taken_first() -> None:
    pool = NodePool(rooms={"a": 4, "b": 4}, shares_nodes=True)
    assert pool.places_for(world(1), taken=[{"a": 1}]) == {"b": 1}
    assert pool.places_for(world(7), taken=[{"a": 1}]) == {"b": 4, "a": 3}


def test_a_world_that_the_nodes_can_never_hold_is_known() -> None:
    pool = NodePool(rooms={"a": 2, "b": 2})
    assert pool.holds(world(4))
    assert not pool.holds(world(5))
    assert not pool.holds(world(3, "strict_pack"))
    assert not pool.holds(world(3, "strict_spread"))


@pytest.mark.parametrize(
    ("placement", "workers", "places"),
    [
        ("pack", 3, {"c": 3}),
        ("pack", 5, {"d": 4, "a": 1}),
        ("pack", 7, {"d": 4, "c": 3}),
        ("strict_pack", 2, {"b": 2}),
        ("strict_spread", 3, {"a": 1, "b": 1, "c": 1}),
        ("spread", 2, {"c": 1, "d": 1}),
        ("spread", 6, {"a": 1, "b": 2, "c": 2, "d": 1}),
    ],
)
def test_each_placement_has_its_nodes(placement: str, workers: int, places: dict[str, int]) -> None:
    pool = NodePool(rooms={"a": 1, "b": 2, "c": 3, "d": 4})
    assert pool.places_for(world(workers, placement), taken=[]) == places


rooms = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 4), min_size=1)
placements = st.sampled_from(["pack", "spread", "strict_pack", "strict_spread"])
shapes = st.lists(st.tuples(st.integers(1, 12), placements), max_size=8)


@given(rooms=rooms, shapes=shapes, shares_nodes=st.booleans())
def test_no_place_is_given_twice_and_each_worker_has_one(
    rooms: Mapping[str, int], shapes: list[tuple[int, str]], shares_nodes: bool
) -> None:
    pool = NodePool(rooms=rooms, shares_nodes=shares_nodes)
    taken: list[Places] = []
    for workers, placement in shapes:
        places = pool.places_for(world(workers, placement), taken=taken)
        if places is not None:
            assert sum(places.values()) == workers
            taken.append(places)
    for node, room in rooms.items():
        users = [places[node] for places in taken if node in places]
        assert sum(users) <= room
        assert shares_nodes or len(users) <= 1
