"""Nodes of a session: placements, whole nodes, shared ones; and nodes that a sweep can use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep import Measure, Resources, Sweep, workloads
from dtsweep.plan.allotment import NodePool, Places
from dtsweep.plan.needed_nodes import nodes_json
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import World
from tests.conftest import Command
from tests.linear import sweep_text


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
    for large in (world(5), world(3, "strict_pack"), world(3, "strict_spread")):
        assert not pool.holds(large)


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


# Nodes that sweeps can use at once


def demand(
    workers: list[int], *, placement: str = "pack", repeats: int | None = 2, **resources: Any
) -> int:
    sweep = Sweep(
        workload=workloads.Gpt(),
        axes={"workers": workers, "placement": [placement]},
        measure=Measure(repeats=repeats),
        resources=Resources(**resources),
    )
    rows = nodes_json(sweep, candidates(sweep))["nodes"]["by_workers_per_node"]
    return {row["workers_per_node"]: int(row["at_once"]) for row in rows}[8]


@pytest.mark.parametrize(
    ("workers", "placement", "nodes"),
    [
        ([1, 8], "pack", 1),
        ([1, 16], "pack", 2),
        ([17], "pack", 3),
        ([2, 5], "strict_spread", 5),
        ([2, 5], "spread", 5),
        ([8], "strict_pack", 1),
        # A world that must stay on one node and is too large needs none.
        ([8, 16], "strict_pack", 1),
        ([16], "strict_pack", 0),
    ],
)
def test_one_session_needs_the_nodes_of_the_largest_world(
    workers: list[int], placement: str, nodes: int
) -> None:
    assert demand(workers, placement=placement) == nodes


@pytest.mark.parametrize(
    ("concurrent", "repeats", "nodes"),
    [
        (2, 1, 4 + 2),
        (3, 1, 4 + 2 + 1),
        # No more worlds can be there at once.
        (9, 1, 4 + 2 + 1),
        # A world has a session for each of its launches.
        (3, 2, 4 + 4 + 2),
        (2, None, 4 + 4),
    ],
)
def test_slots_need_the_nodes_of_the_largest_worlds_that_can_be_there_at_once(
    concurrent: int, repeats: int | None, nodes: int
) -> None:
    assert demand([8, 16, 32], repeats=repeats, concurrent=concurrent) == nodes


SWEEP = sweep_text(
    {"workers": [1, 3], "micro_batch": [4, 3]},
    measure="Measure(repeats=2)",
    more='skip=lambda p: "too many" if p.workers == p.micro_batch == 3 else None',
).replace("cpus_per_worker=1, gpus_per_worker=0", "cpus_per_worker=2, gpus_per_worker=1")


def test_a_plan_says_how_many_nodes_a_sweep_needs_for_each_size_of_a_node(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(SWEEP)
    done = forked_command("plan", "study.py", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["nodes"] == {
        "cpus_per_worker": 2,
        "gpus_per_worker": 1,
        "by_workers_per_node": [
            {"workers_per_node": size, "at_once": nodes} for size, nodes in ((1, 3), (2, 2), (4, 1))
        ],
    }
    none = forked_command("plan", "study.py", "--json", "--set", "workers=5", folder=tmp_path)
    rows = json.loads(none.stdout)["nodes"]["by_workers_per_node"]
    assert [row["at_once"] for row in rows] == [5, 3, 2, 1]
