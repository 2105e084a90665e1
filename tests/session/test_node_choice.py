"""Nodes that a session is started on, and its ranks that make a smaller world; no Ray runs here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dtsweep.session.node_choice import FailureCounts, Node, choose_nodes
from dtsweep.session.rank_assignment import assign_ranks, members_of, with_places
from dtsweep.sweep.point import Point, World
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.task import Task, task_of
from tests.outcomes import Tokens


def node(node_id: str, *, leaves_at: float | None = None) -> Node:
    name = f"host-{node_id}"
    return Node(node_id=node_id, name=name, resources={"CPU": 1}, leaves_at=leaves_at)


def chosen(
    nodes: list[Node],
    workers: int,
    *,
    struck: str = "",
    placement: str = "pack",
    grows: bool = False,
) -> tuple[list[str], str | None]:
    """The ids of what is left out, and why the rest is too little."""
    world = World(workers=workers, placement=placement, environment=())
    per_worker: dict[str, float] = {"CPU": 1, "GPU": 0}
    choice = choose_nodes(
        nodes, failing=set(struck), world=world, per_worker=per_worker, grows=grows
    )
    return choice.without, choice.misfit


A, B, C = (node(name) for name in "abc")
LEAVING = node("b", leaves_at=0.0)


NO_ROOM = "2 workers don't fit any more: 1 node with room for 1; host-b is being taken back"


@pytest.mark.parametrize(
    ("nodes", "workers", "options", "left_out", "misfit"),
    [
        # A node that is being taken back is left out, whether or not it is said when.
        ([A, LEAVING, C], 2, {}, ["b"], None),
        ([A, node("b", leaves_at=1e9), C], 2, {}, ["b"], None),
        # A world that does not fit without it is refused at once.
        ([A, LEAVING], 2, {}, ["b"], NO_ROOM),
        # Where nodes can be added they are waited for.
        ([A, LEAVING], 2, {"grows": True}, ["b"], None),
        ([A, B], 2, {"struck": "a", "grows": True}, ["a"], None),
        # A node that trials died on is left out unless the world needs it.
        ([A, B, C], 2, {"struck": "a"}, ["a"], None),
        ([A, B, C], 3, {"struck": "a"}, [], None),
        ([A, B, C], 2, {"struck": "a", "placement": "strict_spread"}, ["a"], None),
        ([A, B, C], 3, {"struck": "a", "placement": "strict_spread"}, [], None),
        # A node has gone.
        ([A, B], 3, {}, [], "3 workers don't fit any more: 2 nodes with room for 1+1"),
    ],
)
def test_nodes_that_are_taken_back_or_struck_are_left_out_where_the_world_can_do_without(
    nodes: list[Node], workers: int, options: Any, left_out: list[str], misfit: str | None
) -> None:
    assert chosen(nodes, workers, **options) == (left_out, misfit)


def test_two_trials_that_died_on_a_node_and_nowhere_else_strike_it() -> None:
    failure_counts = FailureCounts()
    for trial in ("one", "one", "two"):
        failure_counts.died(trial, "a")
    assert failure_counts.failing() == {"a"}
    failure_counts.reset()
    assert failure_counts.failing() == frozenset()
    for trial in ("one", "two"):
        failure_counts.died(trial, "a")
    # The second dies elsewhere as well: that is its own fault.
    failure_counts.died("two", "b")
    assert failure_counts.failing() == frozenset()


EVEN, UNEVEN = ["a", "a", "b", "b", "c", "c"], ["a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("nodes", "workers", "placement", "members"),
    [
        (EVEN, 6, "pack", [0, 1, 2, 3, 4, 5]),
        (EVEN, 3, "pack", [0, 1, 2]),
        (EVEN, 3, "spread", [0, 2, 4]),
        (EVEN, 4, "spread", [0, 1, 2, 4]),
        (EVEN, 2, "strict_spread", [0, 2]),
        (UNEVEN, 2, "strict_pack", [1, 2]),
        (UNEVEN, 2, "spread", [0, 1]),
        (UNEVEN, 1, "pack", [1]),
    ],
)
def test_a_smaller_world_is_placed_as_its_placement_says(
    nodes: list[str], workers: int, placement: str, members: list[int]
) -> None:
    assert members_of(nodes, workers=workers, placement=placement) == members


@pytest.mark.parametrize(("nodes", "is_alone"), [(EVEN, [False, False]), (UNEVEN, [True, False])])
def test_a_point_in_turn_has_the_ranks_of_its_own_world_or_is_alone(
    nodes: list[str], is_alone: list[bool]
) -> None:
    sweep = Sweep(workload=Tokens(), axes={})

    def task(workers: int) -> Task:
        return task_of(sweep, Point(workload=Tokens(), workers=workers))

    largest = replace(task(len(nodes)), in_turn=[task(1), task(len(nodes))])
    placed = with_places(largest, range(len(nodes)), nodes)
    assert [one.is_alone for one in placed.in_turn] == is_alone


def test_ranks_count_from_0_in_a_smaller_world_on_each_node_too() -> None:
    assigned = assign_ranks(EVEN, [2, 3, 4], world=7)
    assert [one.rank for one in assigned] == [None, None, 0, 1, 2, None]
    members = [one for one in assigned if one.rank is not None]
    assert [(one.local_rank, one.local_workers) for one in members] == [(0, 2), (1, 2), (0, 1)]
    assert [one.node_rank for one in members] == [0, 0, 1]
    assert {(one.world, one.workers) for one in assigned} == {(7, 3)}


def test_a_world_that_comes_up_nowhere_leaves_no_strike_on_the_nodes_that_it_tried() -> None:
    failure_counts = FailureCounts()
    for start, node_id in (("start 1", "a"), ("start 2", "a")):
        failure_counts.died(start, node_id)
    failure_counts.reset_nodes(["start 1", "start 2"])
    assert failure_counts.failing() == {"a"}
    failure_counts.died("start 3", "b")
    failure_counts.reset_nodes(["start 1", "start 2", "start 3"])
    assert failure_counts.failing() == frozenset()
